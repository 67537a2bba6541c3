// Branches as what they are to kernels: their o is a captured tensor of the attention whose
// epilogue combines them. An attention with branches is computed as that of each branch, then the
// one that captures what they made; backward the other way around, from the gradients of what is
// captured.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/attention.h"

namespace attn::ir {

// The attention without branches: it captures the o of each, of which it has the gradient of those
// that gradients go through, in place of those of learned tensors that branches alone read. Nodes
// of the DAG keep their numbers.
Attention with_branches_given(const Attention& attention);

// The branch alone, as a part of the whole: its gradients are those that it adds to those of the
// whole, in its own words ("q" for what the whole calls "q2"), o is bhsd and the only output; lse
// is one, too, if `trains`.
Attention branch_alone(const Attention& attention, const Branch& branch, bool trains);

// Whether gradients go through the branch: it reads q, k, v or a learned tensor that has one.
bool has_gradients(const Attention& attention, const Branch& branch);

// The attentions that the whole is made of: that of each branch, and itself.
std::vector<const Attention*> attentions_of(const Attention& attention);

// What the branch reads of the whole, in the words of the branch: q, k, v, tensors.
std::vector<std::string> tensors_read(const Branch& branch);

}  // namespace attn::ir
