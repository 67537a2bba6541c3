// Dropout of the backward: what a mask of the spec keeps, or what kept_drawer.cuh drew.
#pragma once

#include "attn/backward_stages.cuh"
#include "attn/transposed.cuh"

namespace kernels {

// A bit for each score.
template <class Base>
struct BackwardDropout : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using S = typename Base::S;
  using RowBlock = typename Base::RowBlock;
  using Base::Base;
  using Base::stages, Base::expressions, Base::steps, Base::kept, Base::kScores, Base::held_row,
      Base::held_key;

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

  // The same for random dropout, which a KeptDrawer has drawn.
  __device__ __forceinline__ void take_kept() {
    const unsigned thread = (thread_read_again() - 128) % (2 * S::kKeys);
    const float2 both = load_two(stages.drawn(steps) + thread * 8);
    kept[0] = __float_as_uint(both.x), kept[1] = __float_as_uint(both.y);
  }
};

}  // namespace kernels
