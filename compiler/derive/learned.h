// The gradients of learned tensors: sums over all scores, or rows, at which an element is read.
#pragma once

#include <string>
#include <vector>

#include "compiler/gradient/differentiate.h"
#include "runtime/plan/program.h"

namespace attn::derive {

// Names of tensors that are read, and one extent; those of scores, or of rows, only where a tensor
// has gathers there.
struct LearnedTensors {
  std::string products;      // f32 [B,Hq,Sq,columns], q k^T before the scale
  std::string modified;      // f32 [B,Hq,Sq,columns], dS', 0 where hidden
  std::int64_t columns = 0;  // Skv or more
  std::string lse;           // f32 [B,Hq,Sq], -inf in rows that there are not
  std::string deltas;        // f32 [B,Hq,Sq], delta
};

struct LearnedSteps {
  std::vector<plan::TensorInfo> internals;
  std::vector<plan::DeriveStep> steps;
};

// What makes the output d_NAME of each of Derivatives::tensors, in the tensor's dtype.
//
// The same whatever the order in which threads run: sums are integers. A first kernel finds the
// largest part of each element; with it the parts become multiples of a power of two, so small that
// the sum of N parts fits in 64 bits: each is off by at most 2^(log2(N) - 61) of the largest one.
// An element with a part that is NaN or infinite becomes NaN.
LearnedSteps learned_steps(const gradient::Derivatives& derivatives, const LearnedTensors& tensors);

}  // namespace attn::derive
