// passes::hoist with the costs of a direction and what cuDNN's kernels can read.
#pragma once

#include <vector>

#include "compiler/passes/rewrite/hoist.h"
#include "compiler/planning/context.h"
#include "runtime/base/status.h"

namespace attn::engines {

// `extra` as in passes::HoistOptions: the derivative of a backward. Without `vectors` what reads a
// tensor over the rows becomes a table. Errors: those of passes::hoist.
Result<passes::Hoisted> hoisted(const ir::Attention& attention, std::vector<ir::ExprId> extra,
                                const planning::Context& context, bool vectors = true);

}  // namespace attn::engines
