// A block of keys or values of 8 bits that becomes a tile of 16-bit floats in shared memory, as
// products read it.
//
// A warp group loads rows to registers, and widens them one or more blocks later: shared memory,
// which products read, would be busy with copies of them, too.
#pragma once

#include "attn/widening.cuh"

namespace kernels {

// `kStored` columns of the `kColumns` that a product reads, multiples of 16, in swizzled panels of
// kPanel columns; the others are 0.
//
// Four lanes have a row, and 16 columns of each 64 of it. Rows of lanes that store together are
// adjacent, so that the swizzle gives all of them different banks.
template <int kRows, int kStored, int kColumns, int kPanel>
struct WidenedRows {
  static_assert(kRows <= 128 && kRows % 16 == 0, "of each 16 rows a warp has 4");
  static_assert(kStored % 16 == 0 && kColumns % 16 == 0, "16 bytes at a time");
  static constexpr int kLanes = 4, kAtOnce = 32 / kLanes;
  static constexpr int kTurns = (kColumns / 16 + kLanes - 1) / kLanes;  // of a row
  static constexpr int kRowsOfWarp = kRows / 4;
  static constexpr int kSteps = (kRowsOfWarp + kAtOnce - 1) / kAtOnce;  // rows of a lane
  static constexpr int kVectors = kSteps * kTurns;                      // of a lane, of 16 bytes
  using Raw = uint4[kVectors];

  // The row of the block that a lane has in a step: of each 16 a warp has 4.
  static __device__ int row_at(int step) {
    const int n = threadIdx.x % 32 / kLanes;
    return n / 4 * 16 + threadIdx.x % kWideningThreads / 32 * 4 + n % 4 + step * (4 * kAtOnce);
  }
  // Whether a lane has a row in that step.
  static __device__ bool has_row(int step) {
    return (step + 1) * kAtOnce <= kRowsOfWarp ||
           step * kAtOnce + (int)(threadIdx.x % 32) / kLanes < kRowsOfWarp;
  }

  // Loads the row of a step, from where the tensor has it; or zeros, if it has none there.
  static __device__ void load(Raw& raw, int step, const unsigned char* row, bool present) {
    const int first = threadIdx.x % kLanes * 16;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int column = turn * (16 * kLanes) + first;
      load_global(raw[step * kTurns + turn], row + column,
                  present && is_below<kStored>(turn, column));
    }
  }

  // Widens what this thread loaded.
  template <class From, class To>
  static __device__ void widen(From type, To wide, const Raw& raw, unsigned to) {
    const int row = row_at(0), first = threadIdx.x % kLanes;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int step = i / kTurns, turn = i % kTurns, vector = turn * kLanes + first;
      if (!has_row(step) || !is_below<kColumns>(turn, 16 * vector)) continue;
      const unsigned rows = to + step * (4 * kAtOnce) * (2 * kPanel);
      store_vector(place_in(rows, row, 2 * vector), widened(type, wide, raw[i].x),
                   widened(type, wide, raw[i].y));
      store_vector(place_in(rows, row, 2 * vector + 1), widened(type, wide, raw[i].z),
                   widened(type, wide, raw[i].w));
    }
  }

  // The address of 8 columns, by their number, of a row of the tile.
  static __device__ unsigned place_in(unsigned tile, int row, int eight) {
    constexpr int kOfPanel = kPanel / 8;
    return tile + eight / kOfPanel * (kRows * 2 * kPanel) + row * (2 * kPanel) +
           (eight % kOfPanel ^ row / (64 / kPanel) % kOfPanel) * 16;
  }

 private:
  // Whether a column, of a turn, is below kEnd.
  template <int kEnd>
  static __device__ bool is_below(int turn, int column) {
    return (turn + 1) * (16 * kLanes) <= kEnd || column < kEnd;
  }
};

}  // namespace kernels
