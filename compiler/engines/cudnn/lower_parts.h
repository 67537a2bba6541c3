// Programs that compute an attention in parts, each by a fused kernel over views of the tensors.
#pragma once

#include <vector>

#include "compiler/engines/shared/launches.h"
#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Errors: unsupported for what parts cannot compute: lengths, random dropout, max and sum_exp,
// gradients of learned tensors.
Status check_parts(const ir::Attention& whole, bool backward);

// The launches as a program needs them: in a forward, those that share rows have an lse, and only
// one of these has the sink. The attention must have passed check_parts. Errors: those of
// launches(), and unsupported for a sink if some rows belong to no part.
Result<std::vector<Launch>> prepared(const ir::Attention& whole, const std::vector<Part>& parts,
                                     bool backward);

// A launch and the program that lowering made from its attention.
struct PartProgram {
  Launch launch;
  plan::Program program;
};

// Joins the parts into one program. Where parts share rows of o, all but one write to the
// workspace, and a kernel merges them, weighted by exp(lse of the part - lse of the row). Shared
// gradients are added. Errors: unsupported if a part checks gathered indices.
Result<plan::Program> joined_forward(const ir::Attention& whole, std::vector<PartProgram> parts);
Result<plan::Program> joined_backward(const ir::Attention& whole, std::vector<PartProgram> parts);

}  // namespace attn::engines
