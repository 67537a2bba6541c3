// Weights that a warp group of the forward hands to the one with the other columns of o (kShares).
#pragma once

#include "attn/forward_stages.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

// In the word of a block, beside kFirstOfTile and kLastOfTile: o is to be scaled.
constexpr unsigned kScalesOutputs = 16;

// Both sides of it.
template <class Base>
struct Handover : Base {
  using C = typename Base::C;
  using Base::Base;
  using Base::stages, Base::handed, Base::tile_words, Base::block, Base::maximum, Base::sum,
      Base::p, Base::lane, Base::kWords, Base::release;

  // What a thread hands over: its weights, four words at a time; the word of the block; if they are
  // not 1, the factors of o, or of a tile's first block the two words of the tile; of its last one
  // maxima and sums.
  __device__ __forceinline__ unsigned handed_weights(int n) const {
    return stages.handed(handed.stage) + (n * 128 + threadIdx.x % 128) * 16;
  }
  __device__ __forceinline__ unsigned handed_word(int n) const {
    return stages.handed(handed.stage) + ((kWords + n) * 128 + threadIdx.x % 128) * 4;
  }

  __device__ __forceinline__ void hand_over(unsigned word, const unsigned (&weights)[kWords],
                                            const float (&factor)[2]) {
    const unsigned full = stages.handed_full(handed.stage);
    wait(empty_of(full), handed.parity ^ 1);
    store_shared(handed_word(0), word);
#pragma unroll
    for (int i = 0; i < kWords; i += 4)
      store_vector(handed_weights(i / 4), make_uint2(weights[i], weights[i + 1]),
                   make_uint2(weights[i + 2], weights[i + 3]));
    if (word & (kFirstOfTile | kScalesOutputs)) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
        store_shared(handed_word(1 + r),
                     word & kFirstOfTile ? tile_words[r] : __float_as_uint(factor[r]));
    }
    if (word & kLastOfTile) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        store_shared(handed_word(3 + r), __float_as_uint(maximum[r]));
        store_shared(handed_word(5 + r), __float_as_uint(sum[r]));
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
    for (int i = 0; i < kWords; i += 4) {
      const uint4 four = load_vector(handed_weights(i / 4));
      p[i] = four.x, p[i + 1] = four.y, p[i + 2] = four.z, p[i + 3] = four.w;
    }
    if (block & (kFirstOfTile | kScalesOutputs)) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const unsigned word = load_shared(handed_word(1 + r));
        factor[r] = __uint_as_float(word);
        if (block & kFirstOfTile) tile_words[r] = word;
      }
    }
    if (block & kLastOfTile) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        maximum[r] = __uint_as_float(load_shared(handed_word(3 + r)));
        sum[r] = __uint_as_float(load_shared(handed_word(5 + r)));
      }
    }
    __syncwarp();
    release(full);
    handed.next();
  }
};

}  // namespace kernels
