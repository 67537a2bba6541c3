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
  const double once =
      elements(d, Dim::Hq, Dim::Sq, Dim::Dqk) + elements(d, Dim::Hq, Dim::Sq, Dim::Dv) +
      elements(d, Dim::Hkv, Dim::Skv, Dim::Dqk) + elements(d, Dim::Hkv, Dim::Skv, Dim::Dv);
  const double moved = subject.context().backward() ? 2 * once : once;  // gradients, too
  return passes::predicted_ms_of_moving(2 * moved, subject.context().gpu);
}

// The kernels that make lists run before the one that reads them: three launches.
double predicted_ms_of_lists(const lowering::ListWork& work, const planning::Gpu& gpu) {
  constexpr double kOperations = 20, kOtherLaunches = 2;  // of a score
  const double operations_in_a_ms = gpu.multiprocessors * gpu.lanes * gpu.clock * 1e6;
  return kOtherLaunches * passes::predicted_ms_of_moving(0, gpu) +
         passes::predicted_ms_of_moving(work.bytes, gpu) +
         kOperations * work.scores / operations_in_a_ms;
}

Result<Lowered> lower_again_to_native(Subject& subject, std::size_t refused) {
  const planning::Context& context = subject.context();
  const ir::Attention attention = passes::run_pass("ranges", subject.attention(), context);
  ATTN_ASSIGN(const double least, bound_of_native(subject));
  const passes::Axes axes = passes::varying(subject.mask().axes(), attention.dims);
  ATTN_ASSIGN(lowering::NativeProgram made,
              lowering::lower_native(attention, axes, context, refused));
  const double products =
      passes::predicted_ms_of_products(made.work(), attention.dims, context.gpu);
  const double lists = made.lists ? predicted_ms_of_lists(*made.lists, context.gpu) : 0;
  return Lowered{std::move(made.program), std::max(least, products) + lists, std::move(made.parts)};
}

Result<Lowered> lower_to_native(Subject& subject) { return lower_again_to_native(subject, 0); }

// A kernel that spills is slower than the next tile's.
constexpr std::optional<derive::KernelLimits> kLimits =
    lowering::kWatched ? std::nullopt : std::optional(derive::KernelLimits{.spilled_bytes = 0});

}  // namespace

std::span<const Strategy> engine::native() {
  static constexpr Strategy kStrategies[] = {
      {"native", "kernels of attnc's own over the blocks that masks show, on sm_90",
       Strategy::Kind::on_request, bound_of_native, lower_to_native, lower_again_to_native,
       kLimits}};
  return kStrategies;
}

}  // namespace attn::engines
