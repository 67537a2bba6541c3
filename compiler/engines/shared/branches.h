// Programs of attentions with branches: those of the branches, then that of the attention which
// captures what they make; backward in the other order, with sums of the gradients of what several
// read.
//
//   NAME_o        bound in a training pair, else internal: the o of a branch
//   d_NAME_o      internal: its gradient, of the attention that combines
//   NAME.TENSOR   internal: what the branch's own program calls TENSOR; its part of a gradient
//   own.GRADIENT  internal: the part of the attention that combines
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Refuses layouts that branches do not share. Errors: unsupported, with the place.
Status check_branches(const ir::Attention& attention);

// A branch with its program, of ir::branch_alone.
struct BranchProgram {
  const ir::Branch* branch = nullptr;
  plan::Program program{};
};

// `program` computes ir::with_branches_given, in the direction of those of the branches; of a
// backward they are those of branches that gradients go through. Errors: unsupported, if several of
// them check indexes when tensors are bound.
Result<plan::Program> with_branches(const ir::Attention& attention, plan::Program program,
                                    std::vector<BranchProgram> branches);

}  // namespace attn::engines
