#include "compiler/engines/cudnn/hoisting.h"

#include "compiler/lowering/cudnn/captured_view.h"
#include "compiler/passes/rewrite/pass.h"

namespace attn::engines {

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
  return passes::run_pass("hoist", context,
                          [&] { return passes::hoist(attention, options, context); });
}

}  // namespace attn::engines
