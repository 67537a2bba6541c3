// Products of the forward by warps (mma.cuh): scores, and what weights make of values. Each warp
// has 16 rows of queries.
#pragma once

#include "attn/forward_stages.cuh"
#include "attn/mma.cuh"

namespace kernels {

// Where a lane reads matrices of rows in swizzled panels of kPanel columns: row `row` of the first
// 16 that a product takes, and the first or the second 8 of 16 columns.
template <int kPanel>
ATTN_INLINE unsigned lane_offset(int row, int half) {
  static_assert(kPanel == 64 || kPanel == 32, "swizzles of 128 and 64 bytes");
  return row * (2 * kPanel) + ((half ^ row / (64 / kPanel)) % (kPanel / 8)) * 16;
}
// The address of 16 columns further, `step` times, of a lane's address: panels are `panel` bytes
// apart.
template <int kPanel>
ATTN_INLINE unsigned at_step(unsigned address, int step, int panel) {
  constexpr int kSteps = kPanel / 16;
  return (address ^ step % kSteps * 32) + step / kSteps * panel;
}

// Scores. Queries are in registers where these suffice, or are read for each block.
template <class Base>
struct ScoresOfWarp : Base {
  using C = typename Base::C;
  using Float = typename Base::Float;
  using S = typename Base::S;
  using Base::stages, Base::group, Base::lane, Base::s, Base::kScores;
  static constexpr int kSteps = C::kDepth / 16;
  static constexpr bool kHolds = C::kHoldsQueries;

  const unsigned query_at, key_at;  // of the lane: in the tile, and in a block
  unsigned queries[kHolds ? kSteps : 1][4];

  __device__ __forceinline__ ScoresOfWarp(const S& stages_, const ForwardTensors& tensors_,
                                          const typename Base::E& expressions_, int group_)
      : Base(stages_, tensors_, expressions_, group_),
        query_at(stages_.query(0) + (threadIdx.x / 32 * 16) * S::kKeyRow +
                 lane_offset<C::kDepthPanel>(lane & 15, lane >> 4)),
        key_at(lane_offset<C::kDepthPanel>((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1)) {}

  // Reads them, if they stay in registers.
  __device__ __forceinline__ void hold_queries() {
    if constexpr (!kHolds) return;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) read_queries(i);
  }

  // Makes scores of the keys in a stage.
  __device__ __forceinline__ void multiply_keys(int stage) {
    const unsigned at = stages.key(stage) + key_at;
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = 0;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if constexpr (!kHolds) read_queries(i);
      const unsigned from = at_step<C::kDepthPanel>(at, i, S::kKeyPanel);
#pragma unroll
      for (int n = 0; n < C::kKeys / 16; ++n) {
        unsigned keys[4];
        load_matrices(keys, from + n * 16 * S::kKeyRow);
        multiply(Float{}, s, 8 * n, queries[kHolds ? i : 0], keys[0], keys[1]);
        multiply(Float{}, s, 8 * n + 4, queries[kHolds ? i : 0], keys[2], keys[3]);
      }
    }
  }

 private:
  __device__ __forceinline__ void read_queries(int i) {
    load_matrices(queries[kHolds ? i : 0], at_step<C::kDepthPanel>(query_at, i, S::kQueryPanel));
  }
};

// Products of weights and values.
template <class Base>
struct ValuesOfWarp : Base {
  using C = typename Base::C;
  using Float = typename Base::Float;
  using S = typename Base::S;
  using Base::Base;
  using Base::stages, Base::lane, Base::o, Base::p, Base::s, Base::kWidth;

  // Adds the values in a stage.
  __device__ __forceinline__ void weigh_values(int stage) {
    const unsigned at = stages.value(stage) + lane_offset<C::kWidthPanel>(lane & 15, lane >> 4);
#pragma unroll
    for (int i = 0; i < C::kKeys / 16; ++i) {
#pragma unroll
      for (int n = 0; n < kWidth / 16; ++n) {
        unsigned values[4];
        load_transposed(values,
                        at_step<C::kWidthPanel>(at, n, S::kValuePanel) + i * 16 * S::kValueRow);
        multiply(Float{}, o, 8 * n, p + 4 * i, values[0], values[1]);
        multiply(Float{}, o, 8 * n + 4, p + 4 * i, values[2], values[3]);
      }
    }
  }

  // Weights as a word of an operand.
  __device__ __forceinline__ unsigned word_of(int i) const {
    return pair(Float{}, s[2 * i], s[2 * i + 1]);
  }
};

}  // namespace kernels
