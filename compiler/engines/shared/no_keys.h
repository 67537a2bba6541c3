// Programs for attentions without keys (Skv 0), where all rows are empty and outputs are known.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// One kernel, without cuDNN: o is 0, lse the sink or -inf, max -inf, sum_exp 0. Tensors without
// elements (k, v and captured ones along the keys) are not bound. Requires bound dimensions and a
// hoisted sink.
plan::Program no_keys(const ir::Attention& attention);

// The same for the backward: all gradients are 0. Errors: unsupported if no gradient has an
// element, and for that of a sink where the backward reads dlse.
Result<plan::Program> no_keys_backward(const ir::Attention& attention);

}  // namespace attn::engines
