// Dropout of the backward: what a mask of the spec keeps, or what was drawn (take_kept()).
#pragma once

#include "attn/backward_stages.cuh"
#include "attn/transposed.cuh"

namespace kernels {

// A bit for each score.
template <class Base>
struct BackwardDropout : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using RowBlock = typename Base::RowBlock;
  using Base::Base;
  using Base::expressions, Base::kept, Base::kScores, Base::held_row, Base::held_key;

  // Four bits of each byte: those of the registers from 4 j on are of byte j.
  static __device__ constexpr int bit_of(int i) { return i % 16 / 4 * 8 + i % 4; }
  __device__ __forceinline__ bool is_kept(int i) const { return kept[i / 16] >> bit_of(i) & 1; }

  __device__ __forceinline__ void keep(const RowBlock& block) {
    kept[0] = kept[1] = 0;
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const bool keeps = expressions.keep(block.b(), block.h(), held_row(block, i), held_key(i));
      kept[i / 16] |= (unsigned)keeps << bit_of(i);
    }
  }
};

}  // namespace kernels
