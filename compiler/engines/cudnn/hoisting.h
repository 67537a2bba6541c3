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

// Milliseconds that the kernels which derive tensors take at every execute: a launch, what they
// compute for each element, and what they write. Tensors that are materialized once cost nothing.
double predicted_ms_of_deriving(const passes::Hoisted& hoisted, const planning::Gpu& gpu);

}  // namespace attn::engines
