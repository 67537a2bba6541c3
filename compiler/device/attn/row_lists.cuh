// Lists of row blocks (backward.cuh) for masks that read tensors, made by the GPU: those of
// key_lists.cuh, of an attention whose rows are the columns. The block of threads that ends last
// then divides the blocks of keys that take longer than a share of all work (division.cuh).
//
// Constants are those of key_lists.cuh, and kBatchesOfList and kHeadsOfList, heads of keys that
// share a list; kStepsOfBlock, heads that share keys; kMostParts, kSharesOfAll and kLeastSteps
// (Divider).
#pragma once

#include "attn/division.cuh"
#include "attn/key_lists.cuh"

namespace kernels {

template <class E>
struct Transposed {
  static constexpr bool kIntervals = E::kIntervals, kMasksByIndices = false;
  static constexpr int kRowValues = E::kColumnValues, kColumnValues = E::kRowValues;

  const E& of;

  __device__ bool mask(int b, int h, int row, int column) const {
    return of.mask(b, h, column, row);
  }
  __device__ void row_values(int b, int h, int row, int* values) const {
    of.column_values(b, h, row, values);
  }
  __device__ void column_values(int b, int h, int column, int* values) const {
    of.row_values(b, h, column, values);
  }
  __device__ Interval visible(int b, int h, const Interval* rows, const Interval* columns) const {
    return of.visible(b, h, columns, rows);
  }
};

// Lists the parts of blocks of keys whose rows take more steps than a part has: one of kSharesOfAll
// of all steps, or kLeastSteps. So there are less than 2 kSharesOfAll parts, kMostParts.
template <class C, class Maker>
struct Divider {
  static constexpr int kWarps = kListThreads / 32;
  static constexpr int kUnitsOfList = C::kBatchesOfList * C::kHeadsOfList;
  struct Shared {
    int blocks, all_blocks, parts;
    bool is_last;
  };

  const KeyLists& lists;
  Division& division;
  Shared& shared;

  // Divides a list after it is sorted, by the block of threads that did so.
  __device__ void run(int list) const {
    if (threadIdx.x == 0) shared.blocks = shared.parts = 0;
    __syncthreads();
    count(list);
    __syncthreads();
    if (threadIdx.x == 0) {
      atomicAdd(&division.blocks, shared.blocks);
      shared.is_last = add_in_order(&division.lists_done, 1) == C::kLists - 1;
      shared.all_blocks = atomicAdd(&division.blocks, 0);
    }
    __syncthreads();
    if (shared.is_last) divide();
  }

 private:
  __device__ void count(int list) const {
    int blocks = 0;
#pragma unroll 1
    for (int i = threadIdx.x; i < C::kTiles; i += kListThreads) {
      blocks += lists.tiles[list * C::kTiles + i].blocks;
    }
    atomicAdd(&shared.blocks, blocks);
  }

  __device__ void divide() const {
    const long long all = (long long)shared.all_blocks * kUnitsOfList * C::kStepsOfBlock;
    const int share = (int)((all + C::kSharesOfAll - 1) / C::kSharesOfAll);
    const int steps = ::max(share, C::kLeastSteps);
    const int most = Maker::longest_like(steps / C::kStepsOfBlock);
#pragma unroll 1
    for (int list = threadIdx.x / 32; list < C::kLists; list += kWarps) divide(list, most, steps);
    __syncthreads();
    if (threadIdx.x == 0) division.most = most, division.parts = shared.parts;
  }

  // A warp. Those that are longer than `most` come first.
  __device__ void divide(int list, int most, int steps) const {
#pragma unroll 1
    for (int from = 0; from < C::kTiles; from += 32) {
      const int i = from + threadIdx.x % 32;
      const int blocks = i < C::kTiles ? lists.sorted[list * C::kTiles + i].blocks : 0;
      if (!__any_sync(~0u, blocks > most)) return;
      if (blocks <= most) continue;
      add_parts(list, i, (blocks * C::kStepsOfBlock + steps - 1) / steps);
    }
  }

  __device__ void add_parts(int list, int tile, int parts) const {
    const int b = list / Maker::kHeads, h = list % Maker::kHeads;
    int at = atomicAdd(&shared.parts, kUnitsOfList * parts);
#pragma unroll 1
    for (int i = 0; i < kUnitsOfList; ++i) {
      const int unit = (b + i / C::kHeadsOfList) * C::kUnits + h + i % C::kHeadsOfList;
#pragma unroll 1
      for (int part = 0; part < parts; ++part, ++at) {
        division.part(at) = Part{unit, list * C::kTiles + tile, part, parts};
      }
    }
  }
};

// The kernel: list_keys, and division.
template <class C, class E>
ATTN_INLINE void list_rows(const E& expressions, const KeyLists& lists, Division* division) {
  using Maker = ListMaker<C, E>;
  using Divide = Divider<C, Maker>;
  __shared__ typename Maker::Shared shared;
  const Maker maker{expressions, lists, shared};
  const bool is_sorted = maker.run();
  if constexpr (C::kMostParts > 0) {
    __shared__ typename Divide::Shared of_division;
    if (is_sorted) Divide{lists, *division, of_division}.run(maker.list);
  }
}

}  // namespace kernels
