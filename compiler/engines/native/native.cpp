#include "compiler/engines/native/native.h"

#include "compiler/codegen/scores.h"
#include "compiler/codegen/steps.h"
#include "compiler/engines/native/cost.h"
#include "compiler/engines/native/kernel_names.h"
#include "compiler/engines/native/mask_table.h"
#include "compiler/engines/shared/cost.h"
#include "compiler/engines/shared/strategy.h"
#include "compiler/rewrite/pass.h"

namespace attn::engines {
namespace {

Result<double> bound_of_native(Subject& subject) {
  ATTN_RETURN_IF_ERROR(check_native(subject.attention(), subject.context()));
  return predicted_ms_of_moving(0, subject.context().gpu);
}

// A kernel that spills registers is slower than a kernel with the next tile. But a few spills are
// allowed in a backward, whose last step is outside of its loop, and for a Dv that only one tile
// serves, since cuDNN would take five times as long. The kernel that makes lists may spill any
// number, because it makes them once.
std::optional<nvrtc::KernelLimits> limits(const Subject& subject) {
  constexpr std::int64_t kFew = 32;         // bytes
  constexpr std::int64_t kOfOneTile = 256;  // Dv, above which there is one
  if (kWatched) return std::nullopt;
  const bool may =
      subject.context().backward() || subject.attention().dims[ir::Dim::Dv] > kOfOneTile;
  return nvrtc::KernelLimits{.spilled_bytes = may ? kFew : 0, .may_spill = native::kListsKernel};
}

// Bound values are checked for all expressions, not only those of the table.
plan::Program with_table(const ir::Attention& attention, const rewrite::Hoisted& hoisted,
                         plan::Program program) {
  program = codegen::with_derived(attention, hoisted, std::move(program));
  codegen::check_scores(attention, program);
  return program;
}

Result<Lowered> lower_again_to_native(Subject& subject, std::size_t refused) {
  ATTN_RETURN_IF_ERROR(bound_of_native(subject).status());
  Tabled* const table = tabled(subject);
  Subject& of_kernel = table != nullptr ? table->subject : subject;
  ATTN_ASSIGN(NativeProgram made, native_programs(of_kernel).make(refused));
  double predicted_ms = predicted_ms_of_native(of_kernel, made.work);
  if (table != nullptr) {
    predicted_ms += predicted_ms_of_deriving(table->hoisted, subject.context().gpu);
    made.program = with_table(subject.attention(), table->hoisted, std::move(made.program));
    if (made.coverage) made.coverage->attention = subject.attention();
  }
  Lowered lowered{std::move(made.program), predicted_ms, std::move(made.parts), limits(subject)};
  if (made.coverage) lowered.kernels.push_back(std::move(*made.coverage));
  return lowered;
}

Result<Lowered> lower_to_native(Subject& subject) { return lower_again_to_native(subject, 0); }

}  // namespace

NativePrograms& native_programs(Subject& subject) {
  const ir::Attention& attention = subject.attention();
  return *subject.kept<NativePrograms>([&] {
    return std::make_unique<NativePrograms>(
        rewrite::run_pass("ranges", attention, subject.context()),
        masks::varying(subject.mask().axes(), attention.dims), subject.context());
  });
}

Tabled* tabled(Subject& subject) {
  return subject.kept<Tabled>([&]() -> std::unique_ptr<Tabled> {
    std::optional<rewrite::Hoisted> made = with_mask_table(subject.attention());
    return made ? std::make_unique<Tabled>(std::move(*made), subject.context()) : nullptr;
  });
}

namespace engine {

std::span<const Strategy> native() {
  static constexpr Strategy kStrategies[] = {
      {"native", "attnc's own kernels over the blocks that masks show, on sm_90",
       Strategy::Kind::alternative, bound_of_native, lower_to_native, lower_again_to_native, true,
       native::what_of_launch}};
  return kStrategies;
}

}  // namespace engine

}  // namespace attn::engines
