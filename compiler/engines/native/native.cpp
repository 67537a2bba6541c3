#include "compiler/lowering/native/native.h"

#include "compiler/engines/engine.h"
#include "compiler/passes/analysis/mask_analysis.h"
#include "compiler/passes/rewrite/pass.h"
#include "compiler/passes/strategy/cost.h"

namespace attn::engines {
namespace {

using ir::Dim;

double elements(const ir::Dims& d, Dim heads, Dim rows, Dim depth) {
  return static_cast<double>(d[Dim::B] * d[heads]) * static_cast<double>(d[rows] * d[depth]);
}

// Each operand is read or written once.
Result<double> bound_of_native(Subject& subject) {
  ATTN_RETURN_IF_ERROR(lowering::check_native(subject.attention(), subject.context()));
  const ir::Dims& d = subject.attention().dims;
  const double moved =
      elements(d, Dim::Hq, Dim::Sq, Dim::Dqk) + elements(d, Dim::Hq, Dim::Sq, Dim::Dv) +
      elements(d, Dim::Hkv, Dim::Skv, Dim::Dqk) + elements(d, Dim::Hkv, Dim::Skv, Dim::Dv);
  return passes::predicted_ms_of_moving(2 * moved, subject.context().gpu);
}

Result<Lowered> lower_to_native(Subject& subject) {
  const planning::Context& context = subject.context();
  const ir::Attention attention = passes::run_pass("ranges", subject.attention(), context);
  ATTN_ASSIGN(const double least, bound_of_native(subject));
  const passes::Axes axes = passes::varying(subject.mask().axes(), attention.dims);
  ATTN_ASSIGN(lowering::NativeProgram made, lowering::lower_native(attention, axes, context));
  const double products =
      passes::predicted_ms_of_products(made.work(), attention.dims, context.gpu);
  return Lowered{std::move(made.program), std::max(least, products), std::move(made.parts)};
}

}  // namespace

std::span<const Strategy> engine::native() {
  static constexpr Strategy kStrategies[] = {
      {"native", "one kernel of attnc's own over the key blocks that masks show, on sm_90",
       Strategy::Kind::on_request, bound_of_native, lower_to_native}};
  return kStrategies;
}

}  // namespace attn::engines
