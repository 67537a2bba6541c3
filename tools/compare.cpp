#include "tools/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/words.h"

namespace attn::tools {
namespace {

constexpr double kBoundBf16 = 4e-3;
constexpr double kBoundF16 = 1e-3;
constexpr double kBoundLse = 2e-3;

struct Difference {
  double squares = 0;            // of x - r
  double reference_squares = 0;  // of r
  double max_abs = 0;
  std::int64_t nan = 0;
  std::int64_t infinite = 0;  // infinities that do not stand in both
};

Difference difference(const std::vector<double>& values, const std::vector<double>& reference) {
  Difference total;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = values[i], r = reference[i];
    if (std::isnan(x) || std::isnan(r)) {
      ++total.nan;
    } else if (std::isinf(x) || std::isinf(r)) {
      if (x != r) ++total.infinite;
    } else {
      total.squares += (x - r) * (x - r);
      total.reference_squares += r * r;
      total.max_abs = std::max(total.max_abs, std::abs(x - r));
    }
  }
  return total;
}

// 0 for what is exactly right, also against a reference of zeros.
double relative(const Difference& difference) {
  return difference.squares == 0 ? 0 : std::sqrt(difference.squares / difference.reference_squares);
}

std::string reason(const Comparison& comparison, const Difference& difference) {
  if (difference.nan > 0) return fmt::format("{} values are NaN", difference.nan);
  if (difference.infinite > 0) {
    return fmt::format("{} infinities are not where the reference has them", difference.infinite);
  }
  const double measured =
      comparison.measure == "max abs" ? comparison.max_abs : comparison.relative_l2;
  if (measured <= comparison.bound) return "";
  return fmt::format("{} {:.2e} is more than {:.0e}", comparison.measure, measured,
                     comparison.bound);
}

Comparison compare_one(const std::string& name, const Outputs& outputs,
                       const io::HostTensor& reference, DType dtype) {
  Comparison result;
  result.name = name;
  const bool is_lse = name == "lse";
  result.measure = is_lse ? "max abs" : "relative L2";
  result.bound = is_lse ? kBoundLse : dtype == DType::f16 ? kBoundF16 : kBoundBf16;
  const auto found = outputs.find(name);
  if (found == outputs.end()) {
    result.why = "there is no such output";
  } else if (found->second.dims != reference.dims) {
    result.why = fmt::format("dims {} instead of {}", dims_text(found->second.dims),
                             dims_text(reference.dims));
  } else {
    const Difference total = difference(found->second.values, reference.values);
    result.relative_l2 = relative(total);
    result.max_abs = total.max_abs;
    result.why = reason(result, total);
  }
  return result;
}

}  // namespace

std::vector<Comparison> compare(const Outputs& outputs, const Outputs& reference, DType dtype) {
  std::vector<Comparison> comparisons;
  for (const auto& [name, tensor] : reference) {
    comparisons.push_back(compare_one(name, outputs, tensor, dtype));
  }
  return comparisons;
}

}  // namespace attn::tools
