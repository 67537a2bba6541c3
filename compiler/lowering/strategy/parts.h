// Programs that compute an attention in parts, each by a fused kernel over views of the tensors.
#pragma once

#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/lowering/strategy/launches.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// Errors: unsupported for what parts cannot make: lengths, random dropout, max and sum_exp,
// gradients of learned tensors.
Status check_parts(const ir::Attention& whole, bool backward);

// The launches as a program wants them: those of a forward that share rows have an lse, and the
// sink is in one of them alone. The attention must have passed check_parts. Errors: those of
// launches(), and unsupported for a sink of rows that belong to no part.
Result<std::vector<Launch>> prepared(const ir::Attention& whole,
                                     const std::vector<passes::Part>& parts, bool backward);

// Of each launch the program that lowering makes of its attention.
struct PartProgram {
  Launch launch;
  plan::Program program;
};

// One program. Where parts share rows of o, each but one writes to the workspace, and a kernel
// merges them, weighted by exp(lse of the part - lse of the row). Gradients that parts share are
// added. Errors: unsupported where a part checks what is gathered.
Result<plan::Program> joined_forward(const ir::Attention& whole, std::vector<PartProgram> parts);
Result<plan::Program> joined_backward(const ir::Attention& whole, std::vector<PartProgram> parts);

}  // namespace attn::lowering
