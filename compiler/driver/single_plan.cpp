// The lowerings that make one cuDNN plan of the whole attention.
#include "compiler/derive/steps.h"
#include "compiler/driver/lowerings.h"
#include "compiler/gradient/differentiate.h"
#include "compiler/lowering/captured_view.h"
#include "compiler/lowering/checks.h"
#include "compiler/lowering/interface.h"
#include "compiler/lowering/lower.h"
#include "compiler/lowering/lower_backward.h"
#include "compiler/lowering/no_keys.h"
#include "compiler/lowering/unified.h"
#include "compiler/lowering/unsupported.h"
#include "compiler/passes/hoist.h"
#include "runtime/base/check.h"

namespace attn::driver::ways {
namespace {

passes::HoistOptions hoist_options(bool vectors) {
  passes::HoistOptions options;
  options.vectors = vectors;
  options.readable = [](const ir::Attention& of, ir::ExprId load) {
    return lowering::captured_view(of, load).status();
  };
  return options;
}

Result<passes::Hoisted> hoisted(const ir::Attention& attention,
                                const passes::HoistOptions& options) {
  ATTN_ASSIGN(passes::Hoisted hoisted, passes::hoist(attention, options));
  const Status verified = ir::verify(hoisted.attention);
  ATTN_CHECK(verified.ok(), verified.error().message);
  return hoisted;
}

Result<plan::Program> single_plan(const ir::Attention& attention, lowering::Core core,
                                  bool vectors = true) {
  // What lowering says of open dimensions is the answer.
  if (!attention.dims.bound()) return lowering::lower(attention, core);
  ATTN_ASSIGN(const passes::Hoisted parts, hoisted(attention, hoist_options(vectors)));
  ATTN_ASSIGN(plan::Program program, lowering::lower(parts.attention, core));
  return derive::with_derived(attention, parts, std::move(program));
}

// Those of the fused kernel.
std::set<std::string> operand_gradients(const std::vector<std::string>& gradients) {
  std::set<std::string> names;
  for (const std::string& name : gradients) {
    if (name == "dq" || name == "dk" || name == "dv") names.insert(name);
  }
  return names;
}

Result<plan::Program> fused_backward(const ir::Attention& attention, bool vectors) {
  ATTN_RETURN_IF_ERROR(lowering::check_attention(attention));
  ATTN_RETURN_IF_ERROR(lowering::check_gradients(attention));
  if (attention.dims[ir::Dim::Skv] == 0) return lowering::no_keys_backward(attention);
  const gradient::Derivatives derivatives = gradient::differentiate(attention);
  const std::vector<std::string> gradients = lowering::gradient_names(attention);
  lowering::LearnedGradients learned;
  if (!derivatives.tensors.empty()) {
    ATTN_ASSIGN(learned, lowering::learned_gradients(derivatives));
  }
  passes::HoistOptions options = hoist_options(vectors);
  options.extra = {derivatives.score};
  ATTN_ASSIGN(const passes::Hoisted parts, hoisted(derivatives.attention, options));
  const lowering::BackwardParts backward{parts.attention, parts.extra.front(),
                                         operand_gradients(gradients)};
  ATTN_ASSIGN(plan::Program program,
              lowering::lower_backward(backward, gradients, std::move(learned)));
  return derive::with_derived(derivatives.attention, parts, std::move(program));
}

}  // namespace

Result<plan::Program> composite(const ir::Attention& attention) {
  return single_plan(attention, lowering::composite);
}

Result<plan::Program> unified(const ir::Attention& attention) {
  return single_plan(attention, lowering::unified);
}

Result<plan::Program> composite_backward(const ir::Attention& attention) {
  return fused_backward(attention, true);
}

Result<plan::Program> tables(const ir::Attention& attention) {
  return single_plan(attention, lowering::composite, false);
}

Result<plan::Program> tables_backward(const ir::Attention& attention) {
  return fused_backward(attention, false);
}

Result<plan::Program> unified_backward(const ir::Attention& attention) {
  return lowering::unsupported(attention.pos, "cuDNN has no backward as one node that builds");
}

}  // namespace attn::driver::ways
