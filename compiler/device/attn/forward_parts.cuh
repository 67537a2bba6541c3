// Parts of a tile's keys (kSplits, or those of a schedule): what a warp of the forward stores of
// each.
#pragma once

#include "attn/hopper.cuh"
#include "attn/schedule.cuh"
#include "attn/tile_rows.cuh"

namespace kernels {

// Where they are, and how they are stored.
template <class Base>
struct StoredParts : Base {
  using C = typename Base::C;
  using Base::Base;
  using Base::tensors, Base::group, Base::lane, Base::first_column, Base::o, Base::kSecond,
      Base::kOutputs;

  using Places = Slots<C>;
  static constexpr int kPartStatistics = Places::kPartStatistics;
  static constexpr int kPartSize = Places::kPartSize, kSlotSize = Places::kSize;
  static constexpr int kWarps = Places::kWarps;
  __device__ __forceinline__ int warp() const {
    return ((kSecond ? C::kGroups : 0) + group) * 4 + (threadIdx.x / 32 & 3);
  }
  // The parts of a tile: the place of the first, its own, and how many there are, of which so many
  // are stored.
  struct Parts {
    int first, own, count;
    int* stored;
  };
  __device__ __forceinline__ Parts parts_of(const TileRows<C>& at) const {
    if constexpr (C::kScheduled) {
      const Places slots{tensors.parts};
      const unsigned word = __ldcg(reinterpret_cast<unsigned*>(slots.words(at.item)));
      const int first = (int)(word & kSlotMask);
      return {first - 1, at.item - first, (int)(word >> kSlotBits),
              slots.words(first) + 1 + warp()};
    } else {
      const int tile = at.item / C::kSplits;
      return {tile * C::kSplits, at.item % C::kSplits, C::kSplits,
              tensors.counter + 1 + tile * kWarps + warp()};
    }
  }
  __device__ __forceinline__ float* part_at(const Parts& parts, int part) const {
    return tensors.parts + (long long)(parts.first + part) * kSlotSize + Places::kWords +
           warp() * kPartSize;
  }

  // Writes what the warp has of a part, and of o only the rows that are stored.
  __device__ __forceinline__ void write_part(float* to, const bool (&stored)[2],
                                             const float (&maxima)[2], const float (&sums)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      to[32 * r + lane] = maxima[r], to[32 * (2 + r) + lane] = sums[r];
      if (!stored[r]) continue;
      float* row = to + kPartStatistics + (lane / 4 + 8 * r) * C::kShare + first_column;
#pragma unroll
      for (int i = 2 * r; i < kOutputs; i += 4) {
        *reinterpret_cast<float2*>(row + i / 4 * 8) = float2{o[i], o[i + 1]};
      }
    }
  }

  // True for the last part of the warp's rows.
  __device__ __forceinline__ bool store_part(const TileRows<C>& at, const Parts& parts,
                                             const float (&maxima)[2], const float (&sums)[2]) {
    const bool stored[2] = {at.q[0] < C::kRows, at.q[1] < C::kRows};
    write_part(part_at(parts, parts.own), stored, maxima, sums);
    __threadfence();
    __syncwarp();
    int arrived = 0;
    if (lane == 0) {
      arrived = atomicAdd(parts.stored, 1);
      // The next run with this schedule finds 0 again.
      if (C::kScheduled && arrived == parts.count - 1) *parts.stored = 0;
    }
    arrived = __shfl_sync(~0u, arrived, 0);
    __syncwarp();
    __threadfence();
    return arrived == parts.count - 1;
  }
};

}  // namespace kernels
