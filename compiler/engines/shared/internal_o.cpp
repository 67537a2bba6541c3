#include "compiler/engines/shared/internal_o.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/graph/extent.h"
#include "runtime/plan/internal_tensor.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines {
namespace {

constexpr const char* kO = "o";

bool makes_o_alone(const plan::Step& step) {
  const auto* derive = std::get_if<plan::DeriveStep>(&step);
  return derive != nullptr && derive->outputs == std::vector<std::string>{kO};
}

bool runs_kernels_on_o(const plan::Step& step) {
  return !std::holds_alternative<plan::CudnnStep>(step) && plan::uses(step, kO);
}

// Removes copies of o, unless another step reads or amends it.
void leave_out_copies(std::vector<plan::Step>& steps) {
  const auto needs_it = [](const plan::Step& step) {
    return runs_kernels_on_o(step) && !makes_o_alone(step);
  };
  if (std::ranges::none_of(steps, needs_it)) std::erase_if(steps, makes_o_alone);
}

}  // namespace

ir::Attention with_o(ir::Attention attention) {
  attention.wants_o = true;
  ir::Layout& layout = attention.layouts.find(kO)->second;
  if (layout.kind == ir::LayoutKind::strided) layout = {};
  layout.bound_strides = false;
  return attention;
}

void make_o_internal(plan::Program& program) {
  const auto found = std::ranges::find(program.tensors, kO, &plan::TensorInfo::name);
  if (found == program.tensors.end()) return;
  const auto last = last_offset(found->dims, found->strides);
  ATTN_CHECK(last.has_value(), "a checked program has tensors that can be addressed");
  plan::TensorInfo internal = plan::internal_tensor(kO, found->dtype, {*last + 1});
  program.tensors.erase(found);
  leave_out_copies(program.steps);
  const auto uses_o = [](const plan::Step& step) { return plan::uses(step, kO); };
  if (std::ranges::any_of(program.steps, uses_o)) program.internals.push_back(std::move(internal));
  const Status status = plan::validate(program);
  ATTN_CHECK(status.ok(), status.error().message);
}

}  // namespace attn::engines
