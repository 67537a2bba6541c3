// The lowerings that make one cuDNN plan of the whole attention.
#include "compiler/derive/steps.h"
#include "compiler/driver/lowerings.h"
#include "compiler/lowering/captured_view.h"
#include "compiler/lowering/lower.h"
#include "compiler/lowering/unified.h"
#include "compiler/lowering/unsupported.h"
#include "compiler/passes/hoist.h"
#include "runtime/base/check.h"

namespace attn::driver::ways {
namespace {

Result<plan::Program> single_plan(const ir::Attention& attention, lowering::Core core) {
  // What lowering says of open dimensions is the answer.
  if (!attention.dims.bound()) return lowering::lower(attention, core);
  passes::HoistOptions options;
  options.readable = [](const ir::Attention& of, ir::ExprId load) {
    return lowering::captured_view(of, load).status();
  };
  ATTN_ASSIGN(const passes::Hoisted hoisted, passes::hoist(attention, options));
  const Status verified = ir::verify(hoisted.attention);
  ATTN_CHECK(verified.ok(), verified.error().message);
  ATTN_ASSIGN(plan::Program program, lowering::lower(hoisted.attention, core));
  return derive::with_derived(attention, hoisted, std::move(program));
}

}  // namespace

Result<plan::Program> composite(const ir::Attention& attention) {
  return single_plan(attention, lowering::composite);
}

Result<plan::Program> unified(const ir::Attention& attention) {
  return single_plan(attention, lowering::unified);
}

Result<plan::Program> composite_backward(const ir::Attention& attention) {
  return lowering::unsupported(attention.pos, "the composite lowering has no backward");
}

Result<plan::Program> unified_backward(const ir::Attention& attention) {
  return lowering::unsupported(attention.pos, "cuDNN has no backward as one node that builds");
}

}  // namespace attn::driver::ways
