// Parts of a tile's keys (kSplits), merged by the last warp that stored one.
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
  using Base::Base;
  using Base::expressions, Base::lane, Base::o, Base::kFirstOfWidth, Base::kWidth, Base::kOutputs,
      Base::kPartStatistics, Base::kPartSize, Base::kWarps, Base::part_at, Base::larger,
      Base::factor_of, Base::finish_row, Base::exists, Base::outputs, Base::place_of_row,
      Base::scaled, Base::store_columns;

  // Merges the parts of the warp's rows and stores them: four rows at a time, so that many loads
  // are on their way together.
  __device__ __forceinline__ void store_merged(const TileRows<C>& at, Largest& most) {
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
      if (__any_sync(~0u, q < C::kRows)) store_merged_row(at, row, h, q, most);
    }
  }

  // Eight lanes have a row: each has every eighth part of its statistics, and 8 of 64 columns.
  __device__ __forceinline__ void store_merged_row(const TileRows<C>& at, int row, int h, int q,
                                                   Largest& most) {
    float factors[(C::kSplits + 7) / 8], total, merged[(kWidth + 63) / 64][8] = {};
    const float largest = merge_statistics(at, row, factors, total);
    const float factor = finish_row(at.b, h, q, {largest, total, 1}, lane % 8 == 0, most);
    const int columns = q < C::kRows ? kWidth - lane % 8 * 8 : 0;  // from the lane's first on
    merge_rows(part_at(at, 0) + kPartStatistics + row * C::kShare + lane % 8 * 8, columns, factors,
               merged);
    OutputBits* to = outputs() + place_of_row(at.b, h, q);
#pragma unroll
    for (int i = 0; i < kWidth; i += 64) {
      const float(&x)[8] = merged[i / 64];
      const int column = kFirstOfWidth + i + lane % 8 * 8;
      const bool stores = exists(at.b, q) && i < columns && column < C::kStored;
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

  // Adds the lane's columns of all parts, the first of which is at `from`.
  template <int kOfLane, int kVectors>
  __device__ __forceinline__ void merge_rows(const float* from, int columns,
                                             const float (&factors)[kOfLane],
                                             float (&merged)[kVectors][8]) const {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
#pragma unroll 4
      for (int n = 0; n < 8; ++n, from += kWarps * kPartSize) {
        if (8 * i + n >= C::kSplits) break;
        const float factor = __shfl_sync(~0u, factors[i], (lane & 24) | n);
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          if (64 * v < columns) add_eight(merged[v], from + 64 * v, factor);
        }
      }
    }
  }

  static __device__ __forceinline__ void add_eight(float (&to)[8], const float* from,
                                                   float factor) {
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
      const float4 four = __ldcg(reinterpret_cast<const float4*>(from + i));
      to[i] = fmaf(four.x, factor, to[i]), to[i + 1] = fmaf(four.y, factor, to[i + 1]);
      to[i + 2] = fmaf(four.z, factor, to[i + 2]), to[i + 3] = fmaf(four.w, factor, to[i + 3]);
    }
  }

  // Merges the statistics of a row: gives the factors of the parts that a lane has, and the sum and
  // the maximum of all.
  template <int kOfLane>
  __device__ __forceinline__ float merge_statistics(const TileRows<C>& at, int row,
                                                    float (&factors)[kOfLane], float& total) const {
    const int from = row / 8 * 32 + row % 8 * 4;  // the four lanes that had the row
    float largest = nothing();
    float4 sums[kOfLane];
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int part = 8 * i + lane % 8;
      const bool is_part = part < C::kSplits;
      const float* of = part_at(at, part) + from;
      factors[i] = is_part ? __ldcg(of) : nothing();
      sums[i] = is_part ? __ldcg(reinterpret_cast<const float4*>(of + 64)) : float4{0, 0, 0, 0};
      largest = larger(largest, factors[i]);
    }
    for (int away = 1; away < 8; away *= 2) {
      largest = larger(largest, __shfl_xor_sync(~0u, largest, away));
    }
    total = 0;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      factors[i] = factor_of(factors[i], largest);
      total = fmaf((sums[i].x + sums[i].y) + (sums[i].z + sums[i].w), factors[i], total);
    }
    for (int away = 1; away < 8; away *= 2) total += __shfl_xor_sync(~0u, total, away);
    return largest;
  }
};

}  // namespace kernels
