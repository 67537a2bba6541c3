// Parts of a tile's keys, merged by the last warp that stored one.
#pragma once

#include "attn/hopper.cuh"
#include "attn/tile_rows.cuh"

namespace kernels {

// Merges the parts of the rows of a warp, and stores them.
template <class Base>
struct MergedParts : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using Largest = typename Base::Largest;
  using OutputBits = typename Base::OutputBits;
  using Parts = typename Base::Parts;
  using Base::Base;
  using Base::expressions, Base::lane, Base::o, Base::kFirstOfWidth, Base::kWidth, Base::kOutputs,
      Base::kPartStatistics, Base::kSlotSize, Base::part_at, Base::larger, Base::factor_of,
      Base::finish_row, Base::exists, Base::outputs, Base::place_of_row, Base::scaled,
      Base::store_columns;

  // Merges the parts of the warp's rows and stores them: four rows at a time, so that many loads
  // are on their way together.
  __device__ __forceinline__ void store_merged(const TileRows<C>& at, const Parts& parts,
                                               Largest& most) {
    // They are in no register meanwhile; but ptxas has fewer for random dropout if they are
    // cleared.
    if constexpr (!E::kRandom) {
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) o[i] = 0;
    }
#pragma unroll 1
    for (int first = 0; first < 16; first += 4) {
      const int row = first + lane / 8, r = first / 8, from = row % 8 * 4;
      const int q = __shfl_sync(~0u, r == 0 ? at.q[0] : at.q[1], from);
      const int h = __shfl_sync(~0u, r == 0 ? at.h[0] : at.h[1], from);
      if (__any_sync(~0u, exists(at.b, q))) store_merged_row(at, parts, row, h, q, most);
    }
  }

  // Eight lanes have a row: each has every eighth part of its statistics, and 8 of 64 columns.
  __device__ __forceinline__ void store_merged_row(const TileRows<C>& at, const Parts& parts,
                                                   int row, int h, int q, Largest& most) {
    float merged[(kWidth + 63) / 64][8] = {};
    const int columns = exists(at.b, q) ? kWidth - lane % 8 * 8 : 0;  // from the lane's first on
    const Merged of = merge_parts(parts, row, columns, merged);
    const float factor = finish_row(at.b, h, q, {of.largest, of.total, 1}, lane % 8 == 0, most);
    OutputBits* to = outputs() + place_of_row(at.b, h, q);
#pragma unroll
    for (int i = 0; i < kWidth; i += 64) {
      const float(&x)[8] = merged[i / 64];
      const int column = kFirstOfWidth + i + lane % 8 * 8;
      const bool stores = exists(at.b, q) && i < columns && column < C::kStored;
      if constexpr (E::kEpilogue) {
        if (stores) this->store_merged_columns(at.b, h, q, column, x, factor);
        continue;
      }
      unsigned pairs[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        pairs[j] = scaled(x[2 * j], x[2 * j + 1], factor, stores, most);
      }
      if (!stores) continue;
      if constexpr (sizeof(OutputBits) == 1) {
        store_columns(to, column, {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16});
      } else {
        store_columns(to, column, pairs);
      }
    }
  }

  // The maximum and the sum of a row.
  struct Merged {
    float largest, total;
  };

  // Eight parts after another: what was merged shrinks where the maximum moves.
  template <int kVectors>
  __device__ __forceinline__ Merged merge_parts(const Parts& parts, int row, int columns,
                                                float (&merged)[kVectors][8]) const {
    Merged all{nothing(), 0};
#pragma unroll 1
    for (int first = 0; first < parts.count; first += 8) {
      float factor;
      const Merged of = merge_statistics(parts, first, row, factor);
      const float largest = larger(all.largest, of.largest);
      const float before = factor_of(all.largest, largest), now = factor_of(of.largest, largest);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int i = 0; i < 8; ++i) merged[v][i] *= before;
      }
      merge_eight(parts, first, row, columns, factor * now, merged);
      all = {largest, fmaf(all.total, before, of.total * now)};
    }
    return all;
  }

  // Adds the lane's columns of eight parts, or of those that there are: some at once are on their
  // way together, for which the last one stands in.
  template <int kVectors>
  __device__ __forceinline__ void merge_eight(const Parts& parts, int first, int row, int columns,
                                              float factor, float (&merged)[kVectors][8]) const {
    constexpr int kAtOnce = C::kGroups > 1 ? 1 : kVectors <= 2 ? 4 : 2;  // registers are few
    const int count = ::min(8, parts.count - first);
    const float* from = part_at(parts, first) + kPartStatistics + row * C::kShare + lane % 8 * 8;
#pragma unroll 1
    for (int some = 0; some < count; some += kAtOnce) {
      float of[kAtOnce];
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        of[n] = __shfl_sync(~0u, factor, (lane & 24) | (some + n));
      }
      float4 loaded[kAtOnce][kVectors][2];
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        const float* part = from + (long long)::min(some + n, count - 1) * kSlotSize;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          if (kWidth % 64 != 0 && 64 * v >= columns) continue;
          loaded[n][v][0] = __ldcg(reinterpret_cast<const float4*>(part + 64 * v));
          loaded[n][v][1] = __ldcg(reinterpret_cast<const float4*>(part + 64 * v + 4));
        }
      }
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        if (some + n >= count) break;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          if (kWidth % 64 != 0 && 64 * v >= columns) continue;
          add_two(merged[v], loaded[n][v], of[n]);
        }
      }
    }
  }
  static __device__ __forceinline__ void add_two(float (&to)[8], const float4 (&from)[2],
                                                 float factor) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to[4 * i] = fmaf(from[i].x, factor, to[4 * i]);
      to[4 * i + 1] = fmaf(from[i].y, factor, to[4 * i + 1]);
      to[4 * i + 2] = fmaf(from[i].z, factor, to[4 * i + 2]);
      to[4 * i + 3] = fmaf(from[i].w, factor, to[4 * i + 3]);
    }
  }

  // Merges the statistics of a row, of eight parts: gives the factor of the one that a lane has.
  __device__ __forceinline__ Merged merge_statistics(const Parts& parts, int first, int row,
                                                     float& factor) const {
    const int from = row / 8 * 32 + row % 8 * 4;  // the four lanes that had the row
    const int part = first + lane % 8;
    const bool is_part = part < parts.count;
    const float* of = part_at(parts, is_part ? part : first) + from;
    const float own = __ldcg(of);
    const float4 sums = __ldcg(reinterpret_cast<const float4*>(of + 64));
    float largest = is_part ? own : nothing();
    for (int away = 1; away < 8; away *= 2) {
      largest = larger(largest, __shfl_xor_sync(~0u, largest, away));
    }
    factor = is_part ? factor_of(own, largest) : 0;
    float total = is_part ? ((sums.x + sums.y) + (sums.z + sums.w)) * factor : 0;
    for (int away = 1; away < 8; away *= 2) total += __shfl_xor_sync(~0u, total, away);
    return {largest, total};
  }
};

}  // namespace kernels
