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
// kPanel columns; the others are 0. kUnrolled steps are on their way together, as registers allow.
template <int kRows, int kStored, int kColumns, int kPanel, int kUnrolled>
struct WidenedRows {
  static_assert(kRows <= 128 && kRows % 16 == 0, "a lane looks up a row");
  static_assert(kStored % 16 == 0 && kColumns % 16 == 0, "16 bytes at a time");
  static constexpr int kVectors = kColumns / 16;  // of a row, of 16 bytes
  static constexpr int kLanes = kVectors <= 4 ? 4 : 8, kTurns = (kVectors + kLanes - 1) / kLanes;
  static constexpr int kRowsOfWarp = kRows / 4, kAtOnce = 32 / kLanes;
  static constexpr int kSteps = (kRowsOfWarp + kAtOnce - 1) / kAtOnce;
  static constexpr int kBytes = kSteps * kTurns * kWideningThreads * 16;  // as they are copied

  // The row of the block that is row n of the warp's: of each 16 it has 4.
  static __device__ int row_of(int n) { return n / 4 * 16 + threadIdx.x / 32 * 4 + n % 4; }
  static __device__ int row_at(int step) { return step * kAtOnce + threadIdx.x % 32 / kLanes; }
  static __device__ int vector_at(int turn) { return turn * kLanes + threadIdx.x % kLanes; }
  static __device__ unsigned place_of(int step, int turn) {
    return ((step * kTurns + turn) * kWideningThreads + threadIdx.x) * 16;
  }

  // Copies the block from key `at` on. Row r is the element `page` x page_stride + in_page(r) x
  // row_stride from `rows` on; lane n has the `page` of row n of the warp, -1 if it is past the
  // end.
  template <class InPage>
  static __device__ void copy(unsigned to, const unsigned char* rows, int page,
                              long long page_stride, long long row_stride, const InPage& in_page) {
#pragma unroll(kUnrolled)
    for (int step = 0; step < kSteps; ++step) {
      const int n = row_at(step), of = __shfl_sync(~0u, page, n % 32);
      const bool present = n < kRowsOfWarp && of >= 0;
      const unsigned char* from =
          rows + (present ? of * page_stride + in_page(row_of(n)) * row_stride : 0);
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const int column = vector_at(turn) * 16;
        const bool has = present && column < kStored;
        if (column < kColumns)
          copy_vector(to + place_of(step, turn), from + (has ? column : 0), has);
      }
    }
  }

  // Widens what this thread copied.
  template <class From, class To>
  static __device__ void widen(From type, To wide, unsigned from, unsigned to) {
#pragma unroll(kUnrolled)
    for (int step = 0; step < kSteps; ++step) {
      const int n = row_at(step);
      if (kRowsOfWarp % kAtOnce != 0 && n >= kRowsOfWarp) break;
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const int vector = vector_at(turn);
        if (vector >= kVectors) break;
        const uint4 raw = load_vector(from + place_of(step, turn));
        const uint2 first = widened(type, wide, raw.x), second = widened(type, wide, raw.y);
        const uint2 third = widened(type, wide, raw.z), fourth = widened(type, wide, raw.w);
        // Lanes that are 4 apart have the same places in their panels: they take turns.
        const int turned = vector / 4 & 1;
        store_vector(place_in(to, row_of(n), 2 * vector + turned), either(turned, third, first),
                     either(turned, fourth, second));
        store_vector(place_in(to, row_of(n), 2 * vector + (turned ^ 1)),
                     either(turned, first, third), either(turned, second, fourth));
      }
    }
  }

 private:
  static __device__ uint2 either(int condition, uint2 x, uint2 y) {
    return make_uint2(condition ? x.x : y.x, condition ? x.y : y.y);
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
