// What expressions of a modified score have in the backward.
#pragma once

namespace kernels {

// A score without its constant factor, and the score's derivative by the scaled product.
struct Scored {
  float score, slope;
};
// Derivatives by kHeld elements of learned tensors, too.
template <int kHeld>
struct ScoredBy : Scored {
  float by[kHeld];
};

}  // namespace kernels
