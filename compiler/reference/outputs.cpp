#include "compiler/reference/outputs.h"

namespace attn::reference {

using ir::Dim;

Outputs make_outputs(const ir::Dims& dims, bool unrounded) {
  const DType dtype = unrounded ? DType::f64 : DType::f32;
  const io::HostTensor rows = zeros(dtype, {dims[Dim::B], dims[Dim::Hq], dims[Dim::Sq]});
  return {zeros(dtype, {dims[Dim::B], dims[Dim::Hq], dims[Dim::Sq], dims[Dim::Dv]}),
          rows,
          rows,
          rows,
          rows,
          rows};
}

void write_row(const Problem& problem, const RowSoftmax& row, std::int64_t index,
               Outputs& outputs) {
  const auto at = static_cast<std::size_t>(index);
  outputs.max.values[at] = row.max();
  outputs.sum_exp.values[at] = row.sum_exp();
  outputs.lse.values[at] = row.lse();
  outputs.max_with_sink.values[at] = row.max_with_sink();
  outputs.sum_exp_with_sink.values[at] = row.sum_exp_with_sink();
  if (row.is_empty()) return;  // o stays 0
  const std::int64_t width = problem.size(Dim::Dv);
  double* o = outputs.o.values.data() + index * width;
  for (std::size_t column = 0; column < row.weights().size(); ++column) {
    if (!row.is_visible(column) || row.kept()[column] == 0) continue;
    const double weight = row.kept()[column] * row.weights()[column];
    const double* v = row_of(problem.tensor("v"), row.place().batch, row.kv_head(),
                             static_cast<std::int64_t>(column));
    for (std::int64_t d = 0; d < width; ++d) o[d] += weight * v[d];
  }
  for (std::int64_t d = 0; d < width; ++d) o[d] /= row.sum();
}

void round_outputs(DType dtype, Outputs& outputs) {
  for (double& value : outputs.o.values) value = round_to(dtype, value);
}

}  // namespace attn::reference
