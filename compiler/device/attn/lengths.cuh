// Lengths of batches, as tensors have them or of packed sequences.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// Those of packed sequences, cut to the most that there may be: `starts` has where each begins
// among all rows, and the end of the last.
template <int kMost>
struct PackedLengths {
  const int* starts;

  __device__ int length(int b) const { return starts[b + 1] - starts[b]; }
  __device__ int operator[](int b) const { return ::min(length(b), kMost); }
};

// Whether a length is more than there may be, or less than none.
static __device__ bool is_beyond(const int* lengths, int b, int most) {
  return (unsigned)lengths[b] > (unsigned)most;
}
template <int kMost>
static __device__ bool is_beyond(const PackedLengths<kMost>& lengths, int b, int most) {
  return (unsigned)lengths.length(b) > (unsigned)most;
}

}  // namespace kernels
