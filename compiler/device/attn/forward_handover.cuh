// Weights that a warp group of the forward hands to the one with the other columns of o (kShares).
#pragma once

#include "attn/forward_stages.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

// Both sides of it.
template <class Base>
struct Handover : Base {
  using C = typename Base::C;
  using Base::Base;
  using Base::stages, Base::handed, Base::tile_words, Base::block, Base::maximum, Base::sum,
      Base::p, Base::lane, Base::kWords, Base::release;

  // Words of a thread: the block, the weights, then factors of o, or of a tile's first block the
  // two words of the tile, and maxima and sums of the tile before.
  __device__ __forceinline__ unsigned handed_word(int n) const {
    return stages.handed(handed.stage) + (n * 128 + threadIdx.x % 128) * 4;
  }

  __device__ __forceinline__ void hand_over(unsigned word, const float (&maxima)[2],
                                            const float (&sums)[2], const float (&factor)[2]) {
    const unsigned full = stages.handed_full(handed.stage);
    wait(empty_of(full), handed.parity ^ 1);
    store_shared(handed_word(0), word);
#pragma unroll
    for (int i = 0; i < kWords; ++i) store_shared(handed_word(1 + i), p[i]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const unsigned at = handed_word(1 + kWords + r);
      store_shared(at, word & kFirstOfTile ? tile_words[r] : __float_as_uint(factor[r]));
      if (word & kFirstOfTile) {
        store_shared(at + 2 * 512, __float_as_uint(maxima[r]));
        store_shared(at + 4 * 512, __float_as_uint(sums[r]));
      }
    }
    __syncwarp();
    if (lane == 0) arrive(full);
    handed.next();
  }

  __device__ __forceinline__ void take_over(float (&factor)[2]) {
    const unsigned full = stages.handed_full(handed.stage);
    wait(full, handed.parity);
    block = __shfl_sync(~0u, load_shared(handed_word(0)), 0);
#pragma unroll
    for (int i = 0; i < kWords; ++i) p[i] = load_shared(handed_word(1 + i));
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const unsigned at = handed_word(1 + kWords + r), word = load_shared(at);
      factor[r] = __uint_as_float(word);
      if (block & kFirstOfTile) {
        tile_words[r] = word;
        maximum[r] = __uint_as_float(load_shared(at + 2 * 512));
        sum[r] = __uint_as_float(load_shared(at + 4 * 512));
      }
    }
    __syncwarp();
    release(full);
    handed.next();
  }
};

}  // namespace kernels
