// Matrices of rows in swizzled panels of shared memory, without the tensor memory accelerator:
// copies by all threads of a block (cp.async), and where the lanes of a warp read them (mma.cuh).
#pragma once

#include "attn/mma_rows.cuh"

namespace kernels {

// Copies a matrix of kRows rows to swizzled panels of kPanel columns: kStored of each row, zeros up
// to kNeeded. 8 threads copy 64 columns of a row. `rows` says where a row is in memory, which is
// read only if rows.has(row), and its Format how.
template <int kThreads, int kRows, int kStored, int kNeeded, int kPanel, class Rows>
ATTN_INLINE void copy_rows(unsigned to, const Rows& rows) {
  constexpr int kVectors = kPanel / 8, kAtOnce = kThreads / 8;
  static_assert(kAtOnce % 8 == 0, "rows of a thread are swizzled in the same way");
  const int vector = threadIdx.x % 8, first = threadIdx.x / 8;
  const unsigned place = to + first * (2 * kPanel) + vector / kVectors * (kRows * 2 * kPanel) +
                         (vector ^ first / (64 / kPanel)) % kVectors * 16;
  using Format = typename Rows::Format;
  if constexpr (Format::kCopied)
    copy_rows_of_thread<kAtOnce, kRows, kStored, kNeeded, kPanel>(place, vector, first, rows);
  else
    load_rows<kAtOnce, kRows, kStored, kNeeded, kPanel>(place, vector, first, rows);
}

// Rows of a block of keys or values at one distance.
template <class Format_>
struct AdjacentRowsOfBlock {
  using Format = Format_;
  const typename Format::Bits* first;
  int rows;  // that there are from it on
  long long stride;

  __device__ bool has(int row) const { return row < rows; }
  __device__ const typename Format::Bits* row(int row, int n) const {
    return first + row * stride + n * stride;
  }
};

// Where a lane reads matrices of rows in swizzled panels of kPanel columns: row `row` of the first
// 16 that a product takes, and the first or the second 8 of 16 columns.
template <int kPanel>
ATTN_INLINE unsigned lane_offset(int row, int half) {
  static_assert(kPanel == 64 || kPanel == 32, "swizzles of 128 and 64 bytes");
  return row * (2 * kPanel) + ((half ^ row / (64 / kPanel)) % (kPanel / 8)) * 16;
}
// The address of 16 columns further, `step` times, of a lane's address: panels are `panel` bytes
// apart.
template <int kPanel>
ATTN_INLINE unsigned at_step(unsigned address, int step, int panel) {
  constexpr int kSteps = kPanel / 16;
  return (address ^ step % kSteps * 32) + step / kSteps * panel;
}

}  // namespace kernels
