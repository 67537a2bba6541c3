// The rows of a block of keys or values that a list names, copied row by row.
#pragma once

#include "attn/gathered_rows.cuh"

namespace kernels {

// Row n of the block is key list[n] of a batch, in pages of kPage rows, or, if that is 0, adjacent.
// What is no key is zeros: -1, and whatever else is out of range.
template <int kRows, int kPage, int kColumns, int kDepth, int kPanel, int kUnrolled>
struct ChosenRows : CopiedRows<kRows, kColumns, kDepth, kPanel, kUnrolled> {
  // The page, or batch, of row n of the warp, for lane n, and the row in it; -1 for no row.
  int page, of_page;

  // A list of `listed` keys, of a batch that has `keys`.
  __device__ void find(const int* list, int batch, int keys, const int* table, int at, int listed) {
    const int of_block = this->row_of(threadIdx.x % 32);
    const int key = of_block < kRows && at + of_block < listed ? list[at + of_block] : -1;
    const bool present = key >= 0 && key < keys;
    if constexpr (kPage == 0) {
      page = batch, of_page = present ? key : -1;
    } else {
      page = present ? table[key / kPage] : 0, of_page = present ? key % kPage : -1;
    }
  }

  // Copies rows of a tensor; page_stride and row_stride are in elements.
  __device__ void copy(unsigned to, const unsigned short* rows, unsigned full,
                       long long page_stride, long long row_stride) const {
    this->copy_all(to, rows, full, [&](int n, int) {
      const int in = __shfl_sync(~0u, page, n), row = __shfl_sync(~0u, of_page, n);
      return row < 0 ? -1ll : in * page_stride + row * row_stride;
    });
  }
};

}  // namespace kernels
