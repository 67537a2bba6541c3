// Without keys (Skv 0) no row sees anything, and what comes out is known.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// One kernel, and no step of cuDNN's: o is 0, lse the sink or -inf, max -inf, sum_exp 0. A tensor
// without elements is no tensor of the program: k, v and captured ones along the keys are not
// bound. Requires bound dimensions, and a sink as hoisting leaves it.
plan::Program no_keys(const ir::Attention& attention);

// The same for the backward: all gradients are zeros. Errors: unsupported when no gradient has an
// element.
Result<plan::Program> no_keys_backward(const ir::Attention& attention);

}  // namespace attn::lowering
