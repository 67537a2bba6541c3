// Keys that all sequences of a schedule begin with (kPrefix): items of their own, of rows of any
// sequences, whose results the rows of each sequence add.
//
// Tiles of such items have the packed rows of all sequences, one after another. What warps have of
// their parts stays in memory until the next run. A tile of a sequence begins behind these keys;
// its first part adds the results of its rows, once they are stored. All items of the prefix come
// before all others in turns, and wait for nothing. So what is waited for is always being computed,
// by whichever blocks of threads the GPU runs.
//
// Counters of parts that are stored go up in one run with a schedule and down in the next, so that
// none has to be cleared meanwhile. ScheduleHeader::prefix says which run it is, and changes when
// all blocks of threads have taken their last item.
#pragma once

#include "attn/hopper.cuh"
#include "attn/schedule.cuh"
#include "attn/tile_rows.cuh"

namespace kernels {

// What there is of a prefix, as a word says (ScheduleHeader::prefix).
struct PrefixWord {
  int word;

  __device__ int parts() const { return word / 2; }           // of each tile; 0: there is no prefix
  __device__ int added() const { return word & 1 ? -1 : 1; }  // by each part to its counter
  __device__ int stored() const { return word & 1 ? 0 : parts(); }  // the counter, at the end
};

// Stores results of tiles of the prefix, and adds them to those of sequences.
template <class Base>
struct PrefixOfRows : Base {
  using C = typename Base::C;
  using Places = typename Base::Places;
  using Parts = typename Base::Parts;
  using Base::Base;
  using Base::stages, Base::tensors, Base::lane, Base::first_column, Base::o, Base::kOutputs,
      Base::kSecond, Base::kPartStatistics, Base::exists, Base::larger, Base::factor_of,
      Base::store_part, Base::write_part, Base::part_at;

  __device__ __forceinline__ PrefixWord prefix() const {
    if constexpr (!C::kPrefix) return {0};
    return {(int)load_shared(stages.item_word(0))};
  }
  static __device__ __forceinline__ bool is_of_prefix(const TileRows<C>& at) {
    return C::kPrefix && at.b == C::kBatches;
  }

  __device__ __forceinline__ void store_part_of_prefix(const Parts& parts, const float (&maxima)[2],
                                                       const float (&sums)[2]) {
    const bool all[2] = {true, true};
    write_part(part_at(parts, parts.own), all, maxima, sums);
    __threadfence();
    __syncwarp();
    if (lane == 0) add_in_order(parts.stored, prefix().added());
  }

  // Adds what the prefix gives the rows of a sequence to o, the maxima and the sums.
  __device__ __forceinline__ void add_prefix(const TileRows<C>& at, float (&maxima)[2],
                                             float (&sums)[2]) {
    const PrefixWord of = prefix();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!exists(at.b, at.q[r])) continue;
      const int row = tensors.row_starts[at.b] - tensors.row_starts[0] + at.q[r];
      const int slot = Places::of_prefix(row / C::kRowsOfTile, at.h[r] / C::kPack, of.parts());
      const int of_tile = row % C::kRowsOfTile * C::kPack + at.h[r] % C::kPack;
      const int warp = (kSecond ? 4 * C::kGroups : 0) + of_tile / 16;
      const Places slots{tensors.parts};
      wait_for_count(slots.words(slot) + 1 + warp, of.stored());
      const float* from = tensors.parts + (long long)(slot - 1) * Places::kSize + Places::kWords +
                          warp * Places::kPartSize;
#pragma unroll 1
      for (int part = 0; part < of.parts(); ++part, from += Places::kSize) {
        add_part(from, of_tile % 16, r, maxima[r], sums[r]);
      }
    }
    __syncwarp();
  }

 private:
  // Adds a part of the prefix to row r of the thread, of which `row` is that of the warp before.
  __device__ __forceinline__ void add_part(const float* from, int row, int r, float& maximum,
                                           float& sum) {
    const float* statistics = from + row / 8 * 32 + row % 8 * 4 + lane % 4;
    const float own = __ldcg(statistics), added = __ldcg(statistics + 64);
    const float largest = larger(maximum, own);
    const float before = factor_of(maximum, largest), now = factor_of(own, largest);
    const float* columns = from + kPartStatistics + row * C::kShare + first_column;
#pragma unroll
    for (int i = 2 * r; i < kOutputs; i += 4) {
      const float2 two = __ldcg(reinterpret_cast<const float2*>(columns + i / 4 * 8));
      o[i] = fmaf(two.x, now, o[i] * before), o[i + 1] = fmaf(two.y, now, o[i + 1] * before);
    }
    maximum = largest, sum = fmaf(sum, before, added * now);
  }
};

}  // namespace kernels
