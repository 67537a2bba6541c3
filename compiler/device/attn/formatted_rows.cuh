// A block of keys in rows of several types (kNarrowColumns): e4m3 with a scale for each
// kScaleBlock columns, these scales in f32, then floats of 16 bits. It becomes a tile of 16-bit
// floats in shared memory, as products read it: narrow elements are multiplied with their scale,
// and rounded.
#pragma once

#include "attn/widened_rows.cuh"

namespace kernels {

// Four lanes have a row, as in WidenedRows: 16 bytes of each 64, and all scales.
template <class C>
struct FormattedRows {
  static constexpr int kNarrow = C::kNarrowColumns, kBlock = C::kScaleBlock;
  static constexpr int kWide = C::kTaken - kNarrow, kScales = kNarrow / kBlock;
  static constexpr int kScalesAt = kNarrow, kWideAt = kScalesAt + 4 * kScales;
  using Narrow = WidenedRows<C::kKeys, kNarrow, kNarrow, C::kDepthPanel>;
  static constexpr int kLanes = Narrow::kLanes, kSteps = Narrow::kSteps, kTurns = Narrow::kTurns;
  static constexpr int kScaleTurns = kScales / 4, kWideTurns = kWide / (8 * kLanes);
  static_assert(kNarrow % (16 * kLanes) == 0 && kWide % (8 * kLanes) == 0 && kScales % 4 == 0 &&
                    kBlock % (16 * kLanes) == 0 && kWideAt % 16 == 0,
                "a turn has one scale, and all parts are at multiples of 16 bytes");

  // Where the rows of a lane begin; null for none.
  using Places = const unsigned char* [kSteps];

  // The row of the warp that a lane has in a step, and which one of the block that is.
  static __device__ int of_warp(int step) {
    return threadIdx.x % 32 / kLanes + step * Narrow::kAtOnce;
  }
  static __device__ int of_block(int step) { return Narrow::row_at(step); }

  uint4 narrow[kSteps][kTurns], scales[kSteps][kScaleTurns], wide[kSteps][kWideTurns];

  __device__ void load(const Places& rows) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      load_scales(step, rows[step]);
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) load_narrow(step, turn, rows[step]);
#pragma unroll
      for (int turn = 0; turn < kWideTurns; ++turn) load_wide(step, turn, rows[step]);
    }
  }

  // Stores what is held to a tile, and loads rows of the next block in its place: each vector when
  // that before is stored, so that registers are for one block.
  template <class Float>
  __device__ void exchange(Float type, unsigned to, const Places& next) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int row = of_block(step), first = threadIdx.x % kLanes;
      float factors[kScales];
#pragma unroll
      for (int turn = 0; turn < kScaleTurns; ++turn) {
        const uint4 four = scales[step][turn];
        const unsigned words[] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) factors[4 * turn + i] = __uint_as_float(words[i]);
      }
      load_scales(step, next[step]);
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const float factor = factors[turn * (16 * kLanes) / kBlock];
        const uint4 raw = narrow[step][turn];
        const int eight = 2 * (turn * kLanes + first);  // columns
        store_scaled(type, Narrow::place_in(to, row, eight), raw.x, raw.y, factor);
        store_scaled(type, Narrow::place_in(to, row, eight + 1), raw.z, raw.w, factor);
        load_narrow(step, turn, next[step]);
      }
#pragma unroll
      for (int turn = 0; turn < kWideTurns; ++turn) {
        const uint4 raw = wide[step][turn];
        store_vector(Narrow::place_in(to, row, kNarrow / 8 + turn * kLanes + first),
                     make_uint2(raw.x, raw.y), make_uint2(raw.z, raw.w));
        load_wide(step, turn, next[step]);
      }
    }
  }

 private:
  // What is absent is 0, its scales too: NaN would stay what it is.
  __device__ void load_scales(int step, const unsigned char* row) {
#pragma unroll
    for (int turn = 0; turn < kScaleTurns; ++turn)
      load_global(scales[step][turn], row + kScalesAt + 16 * turn, row != nullptr);
  }
  __device__ void load_narrow(int step, int turn, const unsigned char* row) {
    const int column = 16 * (turn * kLanes + (int)threadIdx.x % kLanes);
    load_global(narrow[step][turn], row + column, row != nullptr);
  }
  __device__ void load_wide(int step, int turn, const unsigned char* row) {
    const int byte = 16 * (turn * kLanes + (int)threadIdx.x % kLanes);
    load_global(wide[step][turn], row + kWideAt + byte, row != nullptr);
  }
  // Eight columns.
  template <class Float>
  static __device__ void store_scaled(Float type, unsigned to, unsigned low, unsigned high,
                                      float factor) {
    store_vector(to, scaled(type, low, factor), scaled(type, high, factor));
  }
  template <class Float>
  static __device__ uint2 scaled(Float type, unsigned four, float factor) {
    const uint2 halves = widened(E4M3{}, F16{}, four);
    const float2 low = floats_of(F16{}, halves.x), high = floats_of(F16{}, halves.y);
    return make_uint2(pair(type, low.x * factor, low.y * factor),
                      pair(type, high.x * factor, high.y * factor));
  }
};

}  // namespace kernels
