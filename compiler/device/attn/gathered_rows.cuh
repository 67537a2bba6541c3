// The rows of a block of keys or values in small pages, copied row by row.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// Copies by a warp group: 8 threads copy 128 bytes of a row. `kColumns` are stored of the `kDepth`
// that a product reads, in panels of kPanel columns.
// kUnrolled turns of the loop are on their way together, as registers allow.
template <int kRows, int kColumns, int kDepth, int kPanel, int kUnrolled>
struct CopiedRows {
  static_assert(kRows <= 128, "a lane looks up a row");
  static constexpr int kVectors = kPanel / 8;  // of a row of a panel
  // The row of the block that is row n of the warp's: of each 16 it has 4.
  static __device__ int row_of(int n) { return n / 4 * 16 + threadIdx.x / 32 * 4 + n % 4; }

  // Copies rows of a tensor: row n of the warp's, which is `row` of the block, from the element
  // place_of(n, row) on, or zeros if that is negative. All lanes of the warp call it with the same
  // n in groups of 8. kOffsets: addresses are those of the row and constants, also where nothing is
  // read, which takes fewer instructions.
  template <bool kOffsets, class PlaceOf>
  __device__ void copy_all(unsigned to, const unsigned short* rows, unsigned full,
                           const PlaceOf& place_of) const {
    const int vector = threadIdx.x % 8, of_four = threadIdx.x % 32 / 8;
#pragma unroll(kUnrolled)
    for (int n = of_four; n < kRows / 4; n += 4) {
      const int row = row_of(n);
      const long long at = place_of(n, row);
      const bool present = at >= 0;
      const unsigned short* from = rows + (present ? at : 0);
      const unsigned place = to + row * (2 * kPanel) + vector / kVectors * (kRows * 2 * kPanel) +
                             (vector ^ row / (64 / kPanel)) % kVectors * 16;
#pragma unroll
      for (int first = 0; first < kDepth; first += 64) {
        const int column = first + vector * 8;
        const bool has = present && column < kColumns;
        if (column >= kDepth) continue;
        if constexpr (kOffsets)
          copy_or_clear(place + first * (kRows * 2), from + vector * 8 + first, has);
        else
          copy_vector(place + first * (kRows * 2), from + (has ? column : 0), has);
      }
    }
    arrive_with_copies(full);
  }
};

// Rows in pages that TMA would copy in many small boxes.
template <int kRows, int kPage, int kColumns, int kDepth, int kPanel, int kUnrolled>
struct GatheredRows : CopiedRows<kRows, kColumns, kDepth, kPanel, kUnrolled> {
  int page;  // of row n of the warp, for lane n; -1 for rows past the end

  __device__ void find(const int* table, int at, int keys) {
    const int of_block = this->row_of(threadIdx.x % 32), row = at + of_block;
    page = of_block < kRows && row < keys ? table[row / kPage] : -1;
  }

  // Where row n of the warp, `row` of the batch, is in a tensor with these strides; -1: nowhere.
  // All lanes call it.
  __device__ long long place(int n, int row, long long page_stride, long long row_stride) const {
    const int of = __shfl_sync(~0u, page, n);
    return of < 0 ? -1ll : of * page_stride + row % kPage * row_stride;
  }

  // Copies rows of a tensor; page_stride and row_stride are in elements.
  template <bool kOffsets = false>
  __device__ void copy(unsigned to, const unsigned short* rows, unsigned full, int at,
                       long long page_stride, long long row_stride) const {
    this->template copy_all<kOffsets>(to, rows, full, [&](int n, int row) {
      return place(n, at + row, page_stride, row_stride);
    });
  }
};

}  // namespace kernels
