// A block of keys or values of 8 bits that becomes a tile of 16-bit floats in shared memory, as
// products read it.
//
// A warp group copies the rows as they are, by cp.async, and widens them some blocks later. What a
// thread widens is what it copied itself: that needs no barrier, only a wait for its own copies. So
// memory has several blocks on their way whatever pages are like, and no thread holds them in
// registers.
#pragma once

#include "attn/mma.cuh"
#include "attn/widening.cuh"

namespace kernels {

constexpr int kWideningThreads = 128;  // a warp group

// `kStored` columns of the `kColumns` that a product reads, multiples of 16, in swizzled panels of
// kPanel columns; the others are 0.
//
// Four lanes have a row, and 16 columns of each 64 of it. Rows of lanes that store together are
// adjacent, so that the swizzle gives all of them different banks. At most kMost vectors are in
// registers together.
template <int kRows, int kStored, int kColumns, int kPanel, int kMost>
struct WidenedRows {
  static_assert(kRows <= 128 && kRows % 16 == 0, "of each 16 rows a warp has 4");
  static_assert(kStored % 16 == 0 && kColumns % 16 == 0, "16 bytes at a time");
  static constexpr int kLanes = 4, kAtOnce = 32 / kLanes;
  static constexpr int kTurns = (kColumns / 16 + kLanes - 1) / kLanes;  // of a row
  static constexpr int kRowsOfWarp = kRows / 4;
  static constexpr int kSteps = (kRowsOfWarp + kAtOnce - 1) / kAtOnce;  // rows of a lane
  static constexpr int kVectors = kSteps * kTurns;                      // of a lane, of 16 bytes
  static constexpr int kBytes = kVectors * kWideningThreads * 16;       // as they are copied
  static constexpr int kTogether = kMost >= 4 && kVectors % 4 == 0   ? 4
                                   : kMost >= 3 && kVectors % 3 == 0 ? 3
                                   : kVectors % 2 == 0               ? 2
                                                                     : 1;

  // The row of the block that is row n of the warp's: of each 16 it has 4.
  static __device__ int row_of(int n) {
    return n / 4 * 16 + threadIdx.x % kWideningThreads / 32 * 4 + n % 4;
  }
  // That which a lane has in a step: it is 32 rows below the one before.
  static __device__ int row_at(int step) {
    return row_of(threadIdx.x % 32 / kLanes) + step * (4 * kAtOnce);
  }
  // Whether a lane has a row in that step.
  static __device__ bool has_row(int step) {
    return (step + 1) * kAtOnce <= kRowsOfWarp ||
           step * kAtOnce + (int)(threadIdx.x % 32) / kLanes < kRowsOfWarp;
  }

  // Copies the row of a step, from where the tensor has it; or zeros, if it has none there.
  static __device__ void copy(unsigned to, int step, const unsigned char* row, bool present) {
    const int first = threadIdx.x % kLanes * 16;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int column = turn * (16 * kLanes) + first;
      const bool stored = is_below<kStored>(turn, column);
      copy_vector(to + place_in_raw(step * kTurns + turn), row + column, present && stored);
    }
  }

  // Widens what this thread copied.
  template <class From, class To>
  static __device__ void widen(From type, To wide, unsigned from, unsigned to) {
    const int row = row_at(0), first = threadIdx.x % kLanes;
#pragma unroll
    for (int some = 0; some < kVectors; some += kTogether) {
      uint4 raw[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) raw[i] = load_vector(from + place_in_raw(some + i));
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int step = (some + i) / kTurns, turn = (some + i) % kTurns;
        const int vector = turn * kLanes + first;
        if (!has_row(step) || !is_below<kColumns>(turn, 16 * vector)) continue;
        const unsigned rows = to + step * (4 * kAtOnce) * (2 * kPanel);
        store_vector(place_in(rows, row, 2 * vector), widened(type, wide, raw[i].x),
                     widened(type, wide, raw[i].y));
        store_vector(place_in(rows, row, 2 * vector + 1), widened(type, wide, raw[i].z),
                     widened(type, wide, raw[i].w));
      }
    }
  }

 private:
  // Whether a column, of a turn, is below kEnd.
  template <int kEnd>
  static __device__ bool is_below(int turn, int column) {
    return (turn + 1) * (16 * kLanes) <= kEnd || column < kEnd;
  }
  static __device__ unsigned place_in_raw(int vector) {
    return (vector * kWideningThreads + threadIdx.x % kWideningThreads) * 16;
  }
  // The address of 8 columns, by their number, of a row of the tile.
  static __device__ unsigned place_in(unsigned tile, int row, int eight) {
    constexpr int kOfPanel = kPanel / 8;
    return tile + eight / kOfPanel * (kRows * 2 * kPanel) + row * (2 * kPanel) +
           (eight % kOfPanel ^ row / (64 / kPanel) % kOfPanel) * 16;
  }
};

// Bytes of a block as it is copied; 0 if none is.
template <bool kSome, class Keys, class Values>
struct BytesOfRows {
  static constexpr int kBytes = 0;
};
template <class Keys, class Values>
struct BytesOfRows<true, Keys, Values> {
  static constexpr int kBytes = Keys::kBytes + Values::kBytes;
};

}  // namespace kernels
