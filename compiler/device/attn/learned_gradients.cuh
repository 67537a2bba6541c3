// Kernels after the backward: gradients of learned tensors.
#pragma once

#include "attn/learned_elements.cuh"

namespace kernels {

// Adds the sums of diagonals, one for each thread, to those of the elements that their scores read.
template <class C, int kPart, class E>
ATTN_INLINE void spread_diagonals(unsigned long long* words, const ExactSums& sums,
                                  const E& expressions) {
  constexpr LearnedPart kOf = E::kLearned[kPart];
  const long long i = attn_thread();
  const int head = (int)(i / kDiagonalsOfHead<C>);
  const int distance = (int)(i % kDiagonalsOfHead<C>)-(C::kColumns - 1);
  const int row = distance < 0 ? 0 : distance;
  double sum = 0;
  long long element = -1;
  if (i < kOf.elements) {
    if constexpr (kOf.bits == 0)
      sum = ExactSums{words + kOf.place, kOf.elements}.sum(i);
    else
      sum = FixedSums{reinterpret_cast<Largest*>(words), words + kOf.place}.sum(i, kOf.bits);
    element = expressions.template element<kPart>(head / C::kHeads, head % C::kHeads, row,
                                                  row - distance, 0);
  }
  // Those of a warp are often of one element, such as a bucket.
  const bool same = __all_sync(~0u, element == __shfl_sync(~0u, element, 0));
  if (same) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  }
  if (element >= 0 && (!same || threadIdx.x % 32 == 0)) sums.add(element, (float)sum);
}

// The sum, over the heads for which `element(b, h)` is that of this block of threads, of their
// parts (BackwardTensors::parts): this thread's share, in an order that is always the same.
template <class C, typename Element>
ATTN_INLINE double share_of_parts(const float* parts, Element element) {
  constexpr int kOfHead = C::kKeyBlocks * kPartsOfBlock;
  double share = 0;
  for (int head = 0; head < C::kBatches * C::kHeads; ++head) {
    if (element(head / C::kHeads, head % C::kHeads) != blockIdx.x) continue;
    for (int i = threadIdx.x; i < kOfHead; i += blockDim.x) {
      share += parts[(long long)head * kOfHead + i];
    }
  }
  return share;
}
// The sum of all shares, for the first thread.
ATTN_INLINE double sum_of_shares(double share) {
  double* const shares = reinterpret_cast<double*>(shared_memory());
  shares[threadIdx.x] = share;
  __syncthreads();
  double sum = 0;
  for (unsigned i = 0; threadIdx.x == 0 && i < blockDim.x; ++i) sum += shares[i];
  return sum;
}

}  // namespace kernels
