#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/cost.h"
#include "compiler/engines/shared/products_backward.h"
#include "compiler/engines/shared/strategy.h"
#include "compiler/engines/unfused/lower_unfused.h"

namespace attn::engines {
namespace {

// Everything that is computed for each score goes through memory.
Result<double> bound(Subject& subject) {
  ATTN_RETURN_IF_ERROR(check_not_8_bits(subject.attention(), "the unfused engine's"));
  const ir::Dims& d = subject.attention().dims;
  if (!d.bound()) return 0.0;  // lowering says which is open
  const double bytes_a_score = subject.context().backward() ? 40 : 20;
  return predicted_ms_of_moving(
      bytes_a_score * static_cast<double>(d[ir::Dim::B] * d[ir::Dim::Hq]) *
          static_cast<double>(d[ir::Dim::Sq]) * static_cast<double>(d[ir::Dim::Skv]),
      subject.context().gpu);
}

Result<Lowered> lower(Subject& subject) {
  ATTN_RETURN_IF_ERROR(bound(subject).status());
  const target::Context& context = subject.context();
  Result<plan::Program> program =
      context.backward()
          ? lower_backward_by_products(subject.attention(), context.rewrites.score_bytes)
          : lower_unfused(subject.attention());
  ATTN_RETURN_IF_ERROR(program.status());
  ATTN_ASSIGN(const double predicted_ms, bound(subject));
  Lowered lowered{std::move(*program), predicted_ms};
  lowered.kernels = {coverage_of_all(subject.attention())};
  return lowered;
}

}  // namespace

namespace engine {

std::span<const Strategy> unfused() {
  static constexpr Strategy kStrategies[] = {
      {"unfused", "two products; attnc's kernels compute scores, softmax and weights, in memory",
       Strategy::Kind::slow, bound, lower}};
  return kStrategies;
}

}  // namespace engine

}  // namespace attn::engines
