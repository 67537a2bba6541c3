// rewrite::hoist with the costs of a direction and what cuDNN's kernels can read.
#pragma once

#include <vector>

#include "compiler/rewrite/hoist.h"
#include "compiler/target/context.h"
#include "runtime/base/status.h"

namespace attn::engines {

// `extra` as in rewrite::HoistOptions: the derivative of a backward. Without `vectors` what reads a
// tensor over the rows becomes a table. Errors: those of rewrite::hoist.
Result<rewrite::Hoisted> hoisted(const ir::Attention& attention, std::vector<ir::ExprId> extra,
                                 const target::Context& context, bool vectors = true);

}  // namespace attn::engines
