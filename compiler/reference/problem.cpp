#include "compiler/reference/problem.h"

namespace attn::reference {

Result<Problem> make_problem(const ir::Attention& attention, const Bindings& bindings,
                             bool unrounded) {
  const ir::ExprId roots[] = {attention.scale};
  RowEvaluator evaluator(attention, bindings, roots);
  const double no_score[] = {0};
  evaluator.run({}, no_score);
  const Cell& cell = evaluator.cells(attention.scale).front();
  if (cell.fault) return evaluator.describe(*cell.fault, 0);
  Problem problem{attention, bindings, cell.value, cell.value, unrounded};
  problem.of_stored *= problem.quantizer("descale_q") * problem.quantizer("descale_k");
  return problem;
}

// Four sums, so that additions do not wait for each other.
double dot(const double* x, const double* y, std::int64_t size) {
  double sums[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= size; i += 4) {
    for (std::int64_t lane = 0; lane < 4; ++lane) sums[lane] += x[i + lane] * y[i + lane];
  }
  for (; i < size; ++i) sums[0] += x[i] * y[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

std::int64_t row_offset(const io::HostTensor& tensor, std::int64_t b, std::int64_t h,
                        std::int64_t s) {
  const auto& dims = tensor.dims;
  return ((b * dims[1] + h) * dims[2] + s) * dims[3];
}

io::HostTensor zeros(DType dtype, std::vector<std::int64_t> dims) {
  const auto count = static_cast<std::size_t>(io::element_count(dims));
  return {dtype, std::move(dims), std::vector<double>(count, 0.0)};
}

}  // namespace attn::reference
