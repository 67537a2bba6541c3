// dQ of a step by warps (mma.cuh), added to the sums in memory.
#pragma once

#include "attn/backward_tensors.cuh"
#include "attn/mma_backward_stages.cuh"
#include "attn/mma_panels.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

// How the warps of a block divide dQ^T: 16 columns by 16 rows at a time. `rows`: warps side by side
// along rows; `columns`: those along columns; `tiles` and `units`: what each has of both.
struct SharesOfQueries {
  int rows, columns, tiles, units;

  // Products that a warp makes, and matrices that it reads for them.
  __device__ constexpr int cost() const { return 2 * tiles * units + tiles + units; }

  static __device__ constexpr SharesOfQueries with(int rows, int warps, int tiles, int units) {
    const int columns = warps / rows;
    return {rows, columns, (tiles + columns - 1) / columns, units / rows};
  }
  // The one that takes the least.
  static __device__ constexpr SharesOfQueries of(int warps, int tiles, int units) {
    SharesOfQueries best = with(1, warps, tiles, units);
    for (int rows = 2; rows <= units && rows <= warps; rows *= 2) {
      const SharesOfQueries next = with(rows, warps, tiles, units);
      if (next.cost() < best.cost()) best = next;
    }
    return best;
  }
};

// Adds what this warp has of dQ^T = K^T dS^T, of all keys of the block.
template <class Base>
struct SumsOfWarps : Base {
  using C = typename Base::C;
  using Float = typename Base::Float;
  using S = typename Base::S;
  using RowBlock = typename Base::RowBlock;
  using Base::Base;
  using Base::stages, Base::tensors, Base::steps, Base::lane, Base::warp_of_block;
  static constexpr int kTiles = (C::Queries::kColumns + 15) / 16;
  static constexpr SharesOfQueries kShare =
      SharesOfQueries::of(S::kWarps, kTiles, C::kBlockRows / 16);

  // All threads of the block call it, once all have stored dS^T.
  __device__ __forceinline__ void add_queries() const {
    if (tensors.query_sums == nullptr) return;
    const int first = (int)(load_shared(stages.step_words(steps)) & kKeyBits);
    if (first >= C::kRows) return;
    const int tile = warp_of_block() / kShare.rows * kShare.tiles;
    const int unit = warp_of_block() % kShare.rows * kShare.units;
    float dq[kShare.tiles][8 * kShare.units];
    multiply(tile, unit, dq);
    if constexpr (C::kOrdered) take_turn(first);
    add(tile, first + unit * 16, dq);
    if constexpr (C::kOrdered) pass_turn(first);
  }

 private:
  __device__ __forceinline__ void multiply(int tile, int unit,
                                           float (&dq)[kShare.tiles][8 * kShare.units]) const {
    const unsigned x = stages.keys() + lane_offset<C::kDepthPanel>((lane() & 7) + (lane() >> 4) * 8,
                                                                   lane() >> 3 & 1);
    const unsigned y = at_step<C::kBlockRows>(
        stages.slopes() + lane_offset<C::kBlockRows>(lane() & 15, lane() >> 4), unit, 0);
#pragma unroll
    for (int i = 0; i < kShare.tiles; ++i) {
#pragma unroll
      for (int j = 0; j < 8 * kShare.units; ++j) dq[i][j] = 0;
    }
#pragma unroll
    for (int key = 0; key < S::kKeys; key += 16) {
      unsigned b[kShare.units][4];
#pragma unroll
      for (int j = 0; j < kShare.units; ++j)
        load_transposed(b[j], at_step<C::kBlockRows>(y, j, 0) + key * S::kSlopeRow);
#pragma unroll
      for (int i = 0; i < kShare.tiles; ++i) {
        if (tile + i >= kTiles) continue;
        unsigned a[4];
        load_transposed(a, at_step<C::kDepthPanel>(x, tile + i, S::kKeyPanel) + key * S::kDepthRow);
#pragma unroll
        for (int j = 0; j < kShare.units; ++j) {
          kernels::multiply(Float{}, dq[i], 8 * j, a, b[j][0], b[j][1]);
          kernels::multiply(Float{}, dq[i], 8 * j + 4, a, b[j][2], b[j][3]);
        }
      }
    }
  }

  // 16 columns of 8 rows are registers of a warp (sums_of_lane()).
  __device__ __forceinline__ void add(int tile, int row,
                                      const float (&dq)[kShare.tiles][8 * kShare.units]) const {
    const int head = (int)load_shared(stages.step_words(steps) + 4);
#pragma unroll
    for (int i = 0; i < kShare.tiles; ++i) {
      if (tile + i >= kTiles) continue;
      const long long place =
          ((long long)head * (C::kDepth / 16) + tile + i) * C::kPaddedRows + row;
      float* const to = tensors.query_sums + place * 16 + lane() * (C::kScatters ? 1 : 4);
#pragma unroll
      for (int j = 0; j < 2 * kShare.units; ++j)
        add_four<!C::kScatters>(to + j * 128, dq[i], 4 * j);
    }
  }

  // Blocks of keys add in turns (backward.cuh).
  __device__ __forceinline__ int* turn_of(int first) const {
    const int head = (int)load_shared(stages.step_words(steps) + 4);
    return tensors.turns + head * C::kRowBlocks + first / C::kBlockRows;
  }
  __device__ __forceinline__ void take_turn(int first) const {
    if (threadIdx.x == 0)
      wait_for_own_turn(turn_of(first), load_shared(stages.step_words(steps) + 8));
    __syncthreads();
  }
  __device__ __forceinline__ void pass_turn(int first) const {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) pass_own_turn(turn_of(first), load_shared(stages.step_words(steps) + 12));
  }
};

}  // namespace kernels
