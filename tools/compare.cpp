#include "tools/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "tools/words.h"

namespace attn::tools {
namespace {

constexpr double kBoundBf16 = 4e-3;
constexpr double kBoundF16 = 1e-3;
constexpr double kBoundLse = 2e-3;
constexpr double kBoundSum = 2e-3;
constexpr double kRowBoundBf16 = 3e-2;
constexpr double kRowBoundF16 = 8e-3;
constexpr double kSmallestRow = 1e-2;  // of the root mean square of the rows' norms

struct Difference {
  double squares = 0;            // of x - r
  double reference_squares = 0;  // of r
  double max_abs = 0;
  std::int64_t nan = 0;
  std::int64_t infinite = 0;  // infinities that do not stand in both
};

Difference difference(std::span<const double> values, std::span<const double> reference) {
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

struct WorstRow {
  std::int64_t row = 0;
  double relative_l2 = 0;
};

// Rows along the last dimension; `total` is the difference of the whole.
WorstRow worst_row(const io::HostTensor& values, const io::HostTensor& reference,
                   const Difference& total) {
  const auto width = static_cast<std::size_t>(reference.dims.empty() ? 1 : reference.dims.back());
  const std::size_t rows = reference.values.size() / width;
  const double smallest =
      kSmallestRow * std::sqrt(total.reference_squares / static_cast<double>(rows));
  WorstRow worst;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto part = [&](const io::HostTensor& tensor) {
      return std::span(tensor.values).subspan(row * width, width);
    };
    const Difference of_row = difference(part(values), part(reference));
    if (of_row.squares == 0) continue;
    const double norm = std::max(smallest, std::sqrt(of_row.reference_squares));
    const double relative_l2 = std::sqrt(of_row.squares) / norm;
    if (relative_l2 > worst.relative_l2) worst = {static_cast<std::int64_t>(row), relative_l2};
  }
  return worst;
}

// "[1,3,511]" of a row's number in a tensor [B, H, S, D].
std::string row_text(std::int64_t row, std::vector<std::int64_t> dims) {
  dims.pop_back();
  for (std::size_t i = dims.size(); i-- > 0;) {
    const std::int64_t size = dims[i];
    dims[i] = row % size;
    row /= size;
  }
  return dims_text(dims);
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

void compare_rows(const io::HostTensor& values, const io::HostTensor& reference,
                  const Difference& total, Comparison& result) {
  const WorstRow worst = worst_row(values, reference, total);
  result.worst_row = worst.relative_l2;
  if (!result.agrees() || worst.relative_l2 <= result.row_bound) return;
  result.why = fmt::format("relative L2 {:.2e} of row {} is more than {:.0e}", worst.relative_l2,
                           row_text(worst.row, reference.dims), result.row_bound);
}

Comparison compare_one(const std::string& name, const Outputs& outputs,
                       const io::HostTensor& reference, DType dtype) {
  Comparison result;
  result.name = name;
  const bool is_logarithm = name == "lse" || name == "max";
  result.measure = is_logarithm ? "max abs" : "relative L2";
  result.bound = is_logarithm          ? kBoundLse
                 : name == "sum_exp"   ? kBoundSum
                 : dtype == DType::f16 ? kBoundF16
                                       : kBoundBf16;
  result.row_bound = dtype == DType::f16 ? kRowBoundF16 : kRowBoundBf16;
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
    if (name == "o") compare_rows(found->second, reference, total, result);
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
