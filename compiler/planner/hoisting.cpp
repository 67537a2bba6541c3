#include "compiler/planner/hoisting.h"

#include "compiler/lowering/cudnn/captured_view.h"
#include "runtime/base/check.h"

namespace attn::planner {

Result<passes::Hoisted> hoisted(const ir::Attention& attention, std::vector<ir::ExprId> extra,
                                const planning::Context& context, bool vectors) {
  passes::HoistOptions options;
  options.vectors = vectors;
  if (context.backward()) {
    options.worth_vector = passes::kWorthVectorBackward;
    options.reading = passes::kReadingBackward;
  }
  options.extra = std::move(extra);
  options.readable = [](const ir::Attention& of, ir::ExprId load) {
    return lowering::captured_view(of, load).status();
  };
  ATTN_ASSIGN(passes::Hoisted hoisted, passes::hoist(attention, options));
  const Status verified = ir::verify(hoisted.attention);
  ATTN_CHECK(verified.ok(), verified.error().message);
  return hoisted;
}

}  // namespace attn::planner
