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

  // The keys of a batch, which has so many, and its pages.
  struct Cache {
    int batch, keys;
    const int* table;
  };

  // A list of `listed` keys.
  __device__ void find(const int* list, const Cache& cache, int at, int listed) {
    look_up(read(list, at, listed), cache);
  }

  // The entry of the list for this lane.
  static __device__ int read(const int* list, int at, int listed) {
    const int of_block = ChosenRows::row_of(threadIdx.x % 32);
    return of_block < kRows && at + of_block < listed ? list[at + of_block] : -1;
  }
  __device__ void look_up(int key, const Cache& cache) {
    const bool present = key >= 0 && key < cache.keys;
    if constexpr (kPage == 0) {
      page = cache.batch, of_page = present ? key : -1;
    } else {
      page = present ? cache.table[key / kPage] : 0, of_page = present ? key % kPage : -1;
    }
  }

  // Where row n of the warp is in a tensor with these strides; -1: nowhere. All lanes call it.
  __device__ long long place(int n, int, long long page_stride, long long row_stride) const {
    const int in = __shfl_sync(~0u, page, n), row = __shfl_sync(~0u, of_page, n);
    return row < 0 ? -1ll : in * page_stride + row * row_stride;
  }

  // Copies rows of a tensor; page_stride and row_stride are in elements.
  template <bool kOffsets = false>
  __device__ void copy(unsigned to, const unsigned short* rows, unsigned full,
                       long long page_stride, long long row_stride) const {
    this->template copy_all<kOffsets>(
        to, rows, full, [&](int n, int row) { return place(n, row, page_stride, row_stride); });
  }
};

// The same, of blocks one after another: what one finds was read while those before were copied. An
// entry of the list is read two blocks ahead, and its page one: each is waited for by the next.
template <int kRows, int kPage, int kColumns, int kDepth, int kPanel, int kUnrolled>
struct ChosenRowsAhead : ChosenRows<kRows, kPage, kColumns, kDepth, kPanel, kUnrolled> {
  using Rows = ChosenRows<kRows, kPage, kColumns, kDepth, kPanel, kUnrolled>;
  using typename Rows::Cache;
  Rows next;             // of the block behind
  int entry;             // of the one behind that
  int expected = kNone;  // where the next block begins, if it is the one behind
  static constexpr int kNone = -1;

  // Forgets what was read: another list follows.
  __device__ void begin() { expected = kNone; }
  __device__ void find(const int* list, const Cache& cache, int at, int listed) {
    if (at != expected) {
      next.find(list, cache, at, listed);
      entry = Rows::read(list, at + kRows, listed);
    }
    static_cast<Rows&>(*this) = next;
    next.look_up(entry, cache);
    entry = Rows::read(list, at + 2 * kRows, listed);
    expected = at + kRows;
  }
};

}  // namespace kernels
