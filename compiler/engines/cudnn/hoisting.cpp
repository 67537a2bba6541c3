#include "compiler/engines/cudnn/hoisting.h"

#include "compiler/engines/cudnn/captured_view.h"
#include "compiler/rewrite/pass.h"

namespace attn::engines {

Result<rewrite::Hoisted> hoisted(const ir::Attention& attention, std::vector<ir::ExprId> extra,
                                 const target::Context& context, bool vectors) {
  rewrite::HoistOptions options;
  options.vectors = vectors;
  if (context.backward()) {
    options.worth_vector = rewrite::kWorthVectorBackward;
    options.reading = rewrite::kReadingBackward;
  }
  options.extra = std::move(extra);
  options.readable = [](const ir::Attention& of, ir::ExprId load) {
    return captured_view(of, load).status();
  };
  return rewrite::run_pass("hoist", context,
                           [&] { return rewrite::hoist(attention, options, context); });
}

}  // namespace attn::engines
