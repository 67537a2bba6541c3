// Support for attentions without the output o. cuDNN's kernels always write it, so it becomes an
// internal tensor of the program, in the workspace.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// The attention with o added to its outputs, without gaps in memory.
ir::Attention with_o(ir::Attention attention);

// Makes the output `o` of a forward of with_o() internal, and removes the steps that only copy it.
void make_o_internal(plan::Program& program);

}  // namespace attn::engines
