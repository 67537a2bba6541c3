// Deltas of a backward over few keys (mma_short_backward.cuh): sums of P dP along rows.
#pragma once

#include "attn/learned_parts.cuh"
#include "attn/mma_backward_stages.cuh"

namespace kernels {

template <class Base>
struct DeltasOfWarps : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using S = typename Base::S;
  using Base::Base;
  using Base::stages, Base::steps, Base::p, Base::dp, Base::kScores, Base::kRowsOfWarp, Base::lane,
      Base::row_group, Base::strip, Base::warp_of_block;

  // Those of pointwise weights are zeros.
  __device__ __forceinline__ void begin_deltas() const {
    for (int row = (int)lane(); row < C::kBlockRows; row += 32)
      store_shared(stages.deltas_of_warp(warp_of_block()) + row * 4, 0);
  }

  // Makes deltas of this warp's rows, when the products with dO and all weights are there: dropped
  // weights are 0. All threads of the block call it.
  __device__ __forceinline__ void add_parts_of_deltas() const {
    if constexpr (!kPointwise<E>) {
      store_parts();
      __syncthreads();
      add_parts();
      __syncwarp();
    }
  }

 private:
  // Sums over this warp's keys.
  __device__ __forceinline__ void store_parts() const {
    const unsigned to = of_rows(stages.parts_of_deltas(warp_of_block()));
    const auto part = [&](int i) {
      return C::Float::widen((unsigned short)(p[i / 2] >> (i & 1) * 16)) * dp[i];
    };
    WarpScores<kScores>{lane()}.add_rows(
        part, [&](int row, int, float sum) { store_shared(to + row * 4, __float_as_uint(sum)); });
  }
  // Adds those of all keys.
  __device__ __forceinline__ void add_parts() const {
    constexpr int kStrips = S::kKeys / 16;
    const int first_warp = warp_of_block() - strip();  // of the row group
    const unsigned from = of_rows(stages.parts_of_deltas(first_warp));
    const unsigned to = of_rows(stages.deltas_of_warp(warp_of_block()));
    const unsigned gradients = of_rows(stages.lse_gradients(S::stage_of(steps)));
#pragma unroll
    for (int row = (int)lane(); row < kRowsOfWarp; row += 32) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kStrips; ++i)
        sum += __uint_as_float(load_shared(from + i * S::kRowBytes + row * 4));
      const float of_lse = __uint_as_float(load_shared(gradients + row * 4));
      store_shared(to + row * 4, __float_as_uint(fmaf(sum, E::kKeptScale, -of_lse)));
    }
  }

  __device__ __forceinline__ unsigned of_rows(unsigned of_block) const {
    return of_block + row_group() * (kRowsOfWarp * 4);
  }
};

}  // namespace kernels
