#include "tools/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "compiler/ir/attention.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

constexpr double kBoundBf16 = 4e-3;
constexpr double kBoundF16 = 1e-3;
constexpr double kBoundLse = 2e-3;
constexpr double kBoundSum = 2e-3;
constexpr double kBoundGradientBf16 = 1e-2;
constexpr double kBoundGradientF16 = 2e-3;
constexpr double kRowBoundBf16 = 3e-2;
constexpr double kRowBoundF16 = 8e-3;
constexpr double kBoundAmaxOfWeights = 2e-3;
constexpr double kSmallestRow = 1e-2;  // of the root mean square of the rows' norms

// The values of a tensor or a part of it.
struct Values {
  std::span<const double> computed;
  std::span<const double> reference;
  std::span<const double> sizes;  // of the terms of a gradient; empty for other tensors
  double least = 0;               // what two roundings of an element differ by, root mean square

  Values part(std::size_t from, std::size_t size) const {
    return {computed.subspan(from, size), reference.subspan(from, size),
            sizes.empty() ? sizes : sizes.subspan(from, size), least};
  }
};

struct Difference {
  double squares = 0;            // of x - r
  double reference_squares = 0;  // of r
  double size_squares = 0;
  double max_abs = 0;
  std::int64_t nan = 0;
  std::int64_t infinite = 0;  // infinities that are not in both

  double norm_squares() const { return std::max(reference_squares, size_squares); }
};

Difference difference(const Values& all) {
  const auto& [values, reference, sizes, least] = all;
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
      const double size = sizes.empty() ? 0 : sizes[i];
      if (std::isfinite(size)) total.size_squares += size * size;
      total.max_abs = std::max(total.max_abs, std::abs(x - r));
    }
  }
  return total;
}

// 0 for an exact match, also with a reference of zeros.
double relative(const Difference& difference) {
  return difference.squares == 0 ? 0 : std::sqrt(difference.squares / difference.norm_squares());
}

double plain(const Difference& difference) {
  if (difference.squares == 0) return 0;
  return std::sqrt(difference.squares / difference.reference_squares);
}

struct WorstRow {
  std::int64_t row = 0;
  double relative_l2 = 0;
};

// `total` is the difference over the whole tensor. Within the bound, roundings may differ by what
// they do.
WorstRow worst_row(const Values& all, std::size_t width, const Difference& total, double bound) {
  const std::size_t rows = all.reference.size() / width;
  const double smallest =
      std::max(kSmallestRow * std::sqrt(total.norm_squares() / static_cast<double>(rows)),
               all.least * std::sqrt(static_cast<double>(width)) / bound);
  WorstRow worst;
  for (std::size_t row = 0; row < rows; ++row) {
    const Difference of_row = difference(all.part(row * width, width));
    if (of_row.squares == 0) continue;
    const double norm = std::max(smallest, std::sqrt(of_row.norm_squares()));
    const double relative_l2 = std::sqrt(of_row.squares) / norm;
    if (relative_l2 > worst.relative_l2) worst = {static_cast<std::int64_t>(row), relative_l2};
  }
  return worst;
}

// "[1,3,511]": the index of a row (or of an element) of a tensor [B, H, S, D], from its number.
std::string place_text(std::int64_t row, std::vector<std::int64_t> dims, bool is_element) {
  if (!is_element) dims.pop_back();
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
    return fmt::format("{} infinities differ from the reference", difference.infinite);
  }
  const double measured =
      comparison.measure == "max abs" ? comparison.max_abs : comparison.relative_l2;
  if (measured <= comparison.bound) return "";
  return fmt::format("{} {:.2e} exceeds {:.0e}", comparison.measure, measured, comparison.bound);
}

bool is_sum(std::string_view name) { return name == "sum_exp" || name == "sum_exp_with_sink"; }

bool has_rows(std::string_view name) {
  return !ir::is_logarithm(name) && !is_sum(name) && !ir::is_amax(name);
}

// Half of the distance between 1 and the next value: the largest relative error of rounding. Of 16
// bits it does not count beside those of 8.
double unit(DType dtype) {
  if (!is_fp8(dtype)) return 0;
  return dtype == DType::e4m3 ? 0x1p-4 : 0x1p-3;
}

// What two roundings of an element of o, dq, dk or dv differ by, root mean square, where it is too
// small for relative errors: elements of 8 bits are multiples of a step.
double least_difference(std::string_view name, const Types& types) {
  const bool is_gradient = name == "dq" || name == "dk" || name == "dv";
  const DType dtype = is_gradient ? types.gradients : types.o;
  if (!is_fp8(dtype) || !(is_gradient || ir::is_o(name))) return 0;
  const double step = dtype == DType::e4m3 ? 0x1p-9 : 0x1p-16;
  return step / std::sqrt(6);
}

// Largest error of o of an 8-bit attention.
double bound_of_o(const Types& types) {
  return std::hypot(unit(types.dtype), unit(types.o)) * std::sqrt(0.5);
}

double bound_of_gradient(std::string_view name, const Types& types) {
  if (name == "dv") return std::hypot(unit(types.dtype), unit(types.gradients));
  return std::hypot(unit(types.d_o), unit(types.gradients), unit(types.o));
}

double bound_of_amax(std::string_view name, const Types& types) {
  if (name == "amax_o") return 2 * unit(types.dtype);
  if (name == "amax_dp") return 2 * std::max(unit(types.o), unit(types.dtype));
  return 2 * bound_of_gradient(name.substr(name.find('_') + 1), types);
}

// d_NAME, whose dimensions have no fixed meaning.
bool is_learned(std::string_view name) { return name.starts_with("d_"); }

void compare_rows(const Values& all, const std::vector<std::int64_t>& dims, const Difference& total,
                  Comparison& result) {
  const bool elements = is_learned(result.name);
  const std::size_t width = elements ? 1 : static_cast<std::size_t>(dims.back());
  const WorstRow worst = worst_row(all, width, total, result.row_bound);
  result.worst_row = worst.relative_l2;
  if (!result.agrees() || worst.relative_l2 <= result.row_bound) return;
  result.why = fmt::format("relative L2 {:.2e} of {} {} exceeds {:.0e}", worst.relative_l2,
                           elements ? "element" : "row", place_text(worst.row, dims, elements),
                           result.row_bound);
}

double bound_of(std::string_view name, bool is_gradient, const Types& types) {
  const bool narrow = types.dtype == DType::f16;
  if (name == "amax_s") return kBoundAmaxOfWeights;
  if (is_fp8(types.dtype)) {
    if (ir::is_amax(name)) return bound_of_amax(name, types);
    if (is_gradient) return bound_of_gradient(name, types);
    if (has_rows(name)) return bound_of_o(types);
  }
  if (is_gradient) return narrow ? kBoundGradientF16 : kBoundGradientBf16;
  if (ir::is_logarithm(name)) return kBoundLse;
  if (is_sum(name)) return kBoundSum;
  return narrow ? kBoundF16 : kBoundBf16;
}

// The error that a score has at least: a few units in the last place of the largest score, which
// the logarithms tell. Kernels have scores in f32. They add up products of 8-bit floats with some
// 13 bits below the largest (compute capability 9.0).
double error_of_scores(const Outputs& reference, const Types& types) {
  double largest = 0;
  for (const auto& [name, tensor] : reference) {
    if (!ir::is_logarithm(name)) continue;
    for (const double value : tensor.values) {
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    }
  }
  const bool rounds = is_fp8(types.dtype) || types.makes_rows;
  return largest * (rounds ? 0x1p-10 : 0x1p-21);
}

// The bound of a sum of exponentials of differences of scores. A sum is never 0, so that an error
// of 1 says nothing.
double bound_of_exponentials(double error) { return std::min(std::expm1(2 * error), 1.0); }

// The bound of a tensor, and at least that for scores with this error.
double bound_of(std::string_view name, bool is_gradient, const Types& types, double error) {
  const double bound = bound_of(name, is_gradient, types);
  if (ir::is_logarithm(name)) return std::max(bound, error);
  // For 8 bits that error is too careful: their sums were within the bound wherever measured.
  const bool follows = is_sum(name) || name == "amax_s";
  if (!follows || is_fp8(types.dtype)) return bound;
  return std::max(bound, bound_of_exponentials(error));
}

Comparison compare_one(const std::string& name, const Outputs& outputs,
                       const io::HostTensor& reference, const Outputs& sizes, const Types& types,
                       double error) {
  Comparison result;
  result.name = name;
  result.measure = ir::is_logarithm(name) ? "max abs" : "relative L2";
  const auto size = sizes.find(name);
  result.bound = bound_of(name, size != sizes.end(), types, error);
  result.row_bound = is_fp8(types.dtype)         ? 4 * result.bound
                     : types.dtype == DType::f16 ? kRowBoundF16
                                                 : kRowBoundBf16;
  const auto found = outputs.find(name);
  if (found == outputs.end()) {
    result.why = "the output is missing";
  } else if (found->second.dims != reference.dims) {
    result.why = fmt::format("dims {} instead of {}", dims_text(found->second.dims),
                             dims_text(reference.dims));
  } else {
    Values all{found->second.values, reference.values, {}, least_difference(name, types)};
    if (size != sizes.end()) all.sizes = size->second.values;
    const Difference total = difference(all);
    if (size != sizes.end()) result.plain_l2 = plain(total);
    result.relative_l2 = relative(total);
    result.max_abs = total.max_abs;
    result.why = reason(result, total);
    if (has_rows(name)) compare_rows(all, reference.dims, total, result);
  }
  return result;
}

}  // namespace

Types::Types(const ir::Attention& attention)
    : dtype(attention.dtype),
      o(attention.dtype_of("o")),
      d_o(attention.dtype_of("do")),
      gradients(attention.dtype_of("dq")),
      makes_rows(attention.prologue_q || attention.prologue_k) {}

std::vector<Comparison> compare(const Outputs& outputs, const Outputs& reference,
                                const Types& types, const Outputs& sizes) {
  const double error = error_of_scores(reference, types);
  std::vector<Comparison> comparisons;
  for (const auto& [name, tensor] : reference) {
    if (tensor.values.empty()) continue;
    comparisons.push_back(compare_one(name, outputs, tensor, sizes, types, error));
  }
  return comparisons;
}

}  // namespace attn::tools
