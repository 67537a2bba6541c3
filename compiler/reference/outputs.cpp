#include "compiler/reference/outputs.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "compiler/reference/blocks.h"

namespace attn::reference {

namespace {

using ir::Dim;

// The larger of the two; NaN if either is.
double larger(double x, double y) { return std::isnan(x) || x > y ? x : y; }

void reduce_amax(io::HostTensor& tensor) {
  double amax = 0;
  for (const double row : tensor.values) amax = larger(row, amax);
  tensor = {tensor.dtype, {1}, {amax}};
}

// What a weight, which dropout has scaled, counts in the product with v.
double in_product(const Problem& problem, double weight) {
  if (!problem.attention.quantize) return weight;
  if (problem.attention.is_mxfp8()) return narrow_weight(problem, weight, ir::kWeightScale);
  return problem.rounded(problem.attention.dtype, weight * problem.quantizer("scale_s"));
}

}  // namespace

Outputs make_outputs(const ir::Attention& attention, bool unrounded) {
  const ir::Dims& dims = attention.dims;
  const DType dtype = unrounded ? DType::f64 : DType::f32;
  const io::HostTensor rows = zeros(dtype, {dims[Dim::B], dims[Dim::Hq], dims[Dim::Sq]});
  const io::HostTensor o =
      zeros(dtype, {dims[Dim::B], dims[Dim::Hq], dims[Dim::Sq], dims[Dim::Dv]});
  return {o,    rows, rows, rows, rows,
          rows, rows, rows, rows, attention.epilogue ? o : io::HostTensor()};
}

namespace {

// Adds up the values of a row that sees keys.
void write_sums(const Problem& problem, const RowSoftmax& row, std::size_t at, Outputs& outputs) {
  const std::int64_t width = problem.size(Dim::Dv);
  double* o = outputs.o.values.data() + static_cast<std::int64_t>(at) * width;
  double& amax_s = outputs.amax_s.values[at];
  for (std::size_t column = 0; column < row.weights().size(); ++column) {
    if (!row.is_visible(column) || row.kept()[column] == 0) continue;
    const double kept = row.kept()[column] * row.weights()[column];
    const double weight = in_product(problem, kept);
    const double* v =
        row_of(problem.tensor("v"), row.place().batch, row.kv_head(), row.key(column));
    for (std::int64_t d = 0; d < width; ++d) o[d] += weight * v[d];
    amax_s = larger(kept / row.sum(), amax_s);
  }
  const double descale = problem.quantizer("descale_s") * problem.quantizer("descale_v");
  for (std::int64_t d = 0; d < width; ++d) {
    o[d] = o[d] * descale / row.sum();
    outputs.amax_o.values[at] = larger(std::abs(o[d]), outputs.amax_o.values[at]);
  }
}

}  // namespace

Status write_row(const Problem& problem, const RowSoftmax& row, RowEpilogue* epilogue,
                 std::int64_t index, Outputs& outputs) {
  const auto at = static_cast<std::size_t>(index);
  outputs.max.values[at] = row.max();
  outputs.sum_exp.values[at] = row.sum_exp();
  outputs.lse.values[at] = row.lse();
  outputs.max_with_sink.values[at] = row.max_with_sink();
  outputs.sum_exp_with_sink.values[at] = row.sum_exp_with_sink();
  outputs.lse_without_sink.values[at] = row.lse_without_sink();
  if (!row.is_empty()) write_sums(problem, row, at, outputs);  // else o stays 0
  if (epilogue == nullptr || row.is_past_end()) return {};
  const auto width = static_cast<std::size_t>(problem.size(Dim::Dv));
  const std::span o(outputs.o.values.data() + at * width, width);
  std::ranges::copy(o, outputs.o_inner.values.data() + at * width);
  return epilogue->run(row.place(), o);
}

void finish_outputs(const Problem& problem, Outputs& outputs) {
  const double scale = problem.quantizer("scale_o");
  const DType dtype = problem.attention.dtype_of("o");
  for (double& value : outputs.o.values) value = problem.rounded(dtype, value * scale);
  for (double& value : outputs.o_inner.values) value = problem.rounded(dtype, value);
  reduce_amax(outputs.amax_s);
  reduce_amax(outputs.amax_o);
}

}  // namespace attn::reference
