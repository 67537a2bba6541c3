// Parts of a tile's keys (kSplits): what a warp of the forward stores of each.
#pragma once

#include "attn/hopper.cuh"
#include "attn/tile_rows.cuh"

namespace kernels {

// Where they are, and how they are stored.
template <class Base>
struct StoredParts : Base {
  using C = typename Base::C;
  using Base::Base;
  using Base::tensors, Base::group, Base::lane, Base::first_column, Base::o, Base::kSecond,
      Base::kOutputs;

  // What a warp stores of a part: for each lane two maxima and two sums, then o, row by row.
  static constexpr int kPartStatistics = 4 * 32, kPartSize = kPartStatistics + 16 * C::kShare;
  static constexpr int kWarps = 4 * C::kGroups * C::kShares;  // that store parts
  __device__ __forceinline__ int warp() const {
    return ((kSecond ? C::kGroups : 0) + group) * 4 + (threadIdx.x / 32 & 3);
  }
  __device__ __forceinline__ float* part_at(const TileRows<C>& at, int part) const {
    const int first = at.item / C::kSplits * C::kSplits;
    return tensors.parts + ((long long)(first + part) * kWarps + warp()) * kPartSize;
  }

  // True for the last part of the warp's rows.
  __device__ __forceinline__ bool store_part(const TileRows<C>& at, const float (&maxima)[2],
                                             const float (&sums)[2]) {
    float* to = part_at(at, at.item % C::kSplits);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      to[32 * r + lane] = maxima[r], to[32 * (2 + r) + lane] = sums[r];
      if (at.q[r] >= C::kRows) continue;
      float* row = to + kPartStatistics + (lane / 4 + 8 * r) * C::kShare + first_column;
#pragma unroll
      for (int i = 2 * r; i < kOutputs; i += 4) {
        *reinterpret_cast<float2*>(row + i / 4 * 8) = float2{o[i], o[i + 1]};
      }
    }
    __threadfence();
    __syncwarp();
    int arrived = 0;
    if (lane == 0) {
      arrived = atomicAdd(tensors.counter + 1 + at.item / C::kSplits * kWarps + warp(), 1);
    }
    arrived = __shfl_sync(~0u, arrived, 0);
    __syncwarp();
    __threadfence();
    return arrived == C::kSplits - 1;
  }
};

}  // namespace kernels
