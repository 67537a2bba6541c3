// The gradients of one attention, by reverse mode in double precision over the dense evaluation:
// the oracle for every backward. Simple before fast.
#pragma once

#include "compiler/reference/evaluate.h"

namespace attn::reference {

// By what they are gradients of: "q", "k", "v" and learned tensors, each of its shape.
using GradientSums = std::map<std::string, io::HostTensor, std::less<>>;

struct Gradients {
  Outputs outputs;  // of the forward, as evaluate() has them
  GradientSums of;
  // With Options::sizes, of the same dims: the root of the sum of squares of the terms that an
  // element is the sum of, which is what their roundings are relative to, also where the terms
  // cancel. A term's size is that before delta (differentiate.h) is subtracted from dP: the root of
  // dP^2 + delta^2 + the squares of the products dO O that delta is the sum of, in place of
  // dP - delta. Not rounded.
  GradientSums sizes;
};

// The gradients of sum(o * d_o) by each of `names`: "q", "k", "v" and tensors that the attention
// learns. d_o is [B,Hq,Sq,Dv]. Unless unrounded, d_o is rounded to the attention's dtype, and
// gradients to that of what they belong to (dtype f32 then, else f64).
//
// lse, max and sum_exp have no cotangent. Masks, lengths and what dropout keeps have no gradient; a
// row in which nothing is visible, and rows and keys behind lengths, give zeros. Where an operation
// has no derivative, the convention is that of compiler/gradient/differentiate.h.
//
// Errors: those of evaluate; binding for a d_o of other dims; invalid_argument for a name without a
// gradient.
Result<Gradients> gradients(const ir::Attention& attention, const Inputs& inputs,
                            const io::HostTensor& d_o, const std::vector<std::string>& names,
                            const Options& options);

// How many key heads are summed up side by side, 1 to `heads`: as many as have room for sums of
// learned tensors of their own. All where nothing is learned. Does not depend on the machine.
std::int64_t heads_at_once(std::int64_t heads, const GradientSums& sums);

}  // namespace attn::reference
