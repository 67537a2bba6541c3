// Copies of the forward by all threads of a block (cp.async): queries of its tile, and blocks of
// keys and values as they are needed. Rows that are not there become zeros, also values past the
// length of a batch, so that a product sees none that are NaN.
#pragma once

#include "attn/forward_items.cuh"
#include "attn/mma.cuh"
#include "attn/which.cuh"

namespace kernels {

// Copies a matrix of kRows rows to swizzled panels of kPanel columns: kStored of each row, zeros up
// to kNeeded. row_of(row): where it is in memory, or null. 8 threads copy 128 bytes of a row.
template <int kThreads, int kRows, int kStored, int kNeeded, int kPanel, class RowOf>
ATTN_INLINE void copy_rows(unsigned to, const unsigned short* some, const RowOf& row_of) {
  constexpr int kVectors = kPanel / 8, kAtOnce = kThreads / 8;
  const int vector = threadIdx.x % 8;
#pragma unroll
  for (int first = 0; first < kRows; first += kAtOnce) {
    const int row = first + threadIdx.x / 8;
    if (kRows % kAtOnce != 0 && row >= kRows) break;
    const unsigned short* const from = row_of(row);
    const unsigned place = to + row * (2 * kPanel) + vector / kVectors * (kRows * 2 * kPanel) +
                           (vector ^ row / (64 / kPanel)) % kVectors * 16;
#pragma unroll
    for (int of_row = 0; of_row < kNeeded; of_row += 64) {
      const int column = of_row + vector * 8;
      const bool has = from != nullptr && column < kStored;
      if (column < kNeeded)
        copy_vector(place + of_row * (kRows * 2), has ? from + column : some, has);
    }
  }
}

// What a thread that copies knows: a base of ForwardTiles.
template <class C_, class E_, class L_>
struct CopierOfBlock {
  using C = C_;
  using E = E_;
  using L = L_;
  using S = Stages<C>;
  static constexpr int kPastAllKeys = (C::kColumns + 15) / 16 * 16;
  static constexpr bool kSparesGroups = false;
  const S stages;
  const ForwardTensors& tensors;
  const E& expressions;
  const L& lists;
};

// Copies the tile of a block of threads, which has one, and its blocks of keys.
template <class Base>
struct CopiesOfBlock : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using Item = typename Base::Item;
  using Blocks = typename Base::Blocks;
  using Base::stages, Base::tensors, Base::expressions;
  static constexpr int kThreads = 128 * C::kGroups;

  Item item;
  Blocks blocks;

  // Finds the tile.
  __device__ void begin() {
    item = Base::item_of(Base::read_item(Base::first_item()));
    blocks = Base::blocks_of(item);
  }
  // What tells rows of the tile (TileRows::set).
  __device__ void tell_tile(unsigned (&words)[2]) const {
    words[0] = item.b * C::kUnits + item.unit;
    words[1] = item.tile.tile * C::kSplits + item.part;
  }

  __device__ void copy_queries() const {
    const int rows = expressions.queries(item.b), first = item.tile.tile * C::kRowsOfTile;
    const unsigned short* const of_unit =
        tensors.query_rows + item.unit * C::kPack * C::kQueryHeadStride +
        (C::kThdQ ? tensors.row_starts[item.b] * C::kQueryRowStride
                  : item.b * C::kQueryBatchStride);
    copy_rows<kThreads, S::kTileRows, C::kTaken, C::kDepth, C::kDepthPanel>(
        stages.query(0), tensors.query_rows, [&](int r) {
          const int q = first + r / C::kPack;
          return q < rows ? of_unit + q * C::kQueryRowStride + r % C::kPack * C::kQueryHeadStride
                          : nullptr;
        });
  }

  // Copies the next block to a stage, if there is one. Returns its word.
  __device__ unsigned copy_block(int stage) {
    if (blocks.left == 0) return kEndOfStream;
    const int at = blocks.key;
    const unsigned word = at | Base::begin_block(blocks);
    const int head = item.unit * C::kPack / C::kHeadsOfKey;
    copy_rows<kThreads, C::kKeys, C::kTaken, C::kDepth, C::kDepthPanel>(
        stages.key(stage), tensors.key_rows,
        RowsOfBatch<C::kKeyPage>(tensors.key_rows + head * C::kKeyHeadStride, tensors.key_table,
                                 C::kKeyPages, C::kKeyPageStride, C::kKeyRowStride,
                                 first_of<C::kThdK>(), item.b, at, blocks.keys));
    copy_rows<kThreads, C::kKeys, C::kStored, C::kWidth, C::kWidthPanel>(
        stages.value(stage), tensors.value_rows,
        RowsOfBatch<C::kValuePage>(tensors.value_rows + head * C::kValueHeadStride,
                                   tensors.value_table, C::kValuePages, C::kValuePageStride,
                                   C::kValueRowStride, first_of<C::kThdV>(), item.b, at,
                                   blocks.used));
    Base::end_block(blocks);
    return word;
  }

 private:
  // Rows of keys or values of a block: of a batch, of a packed sequence, or in pages of kPage rows.
  template <int kPage>
  struct RowsOfBatch {
    const unsigned short* rows;  // of the batch, or of all pages
    const int* table;
    long long page_stride, row_stride;
    int at, end;

    // `start`: the first row, of a packed sequence; -1 of others.
    __device__ RowsOfBatch(const unsigned short* head, const int* tables, int pages,
                           long long batch_stride, long long row_stride_, int start, int b, int at_,
                           int end_)
        : rows(head + (kPage > 0    ? 0
                       : start >= 0 ? start * row_stride_
                                    : b * batch_stride)),
          table(kPage > 0 ? tables + (long long)b * pages : nullptr),
          page_stride(batch_stride),
          row_stride(row_stride_),
          at(at_),
          end(end_) {}
    __device__ const unsigned short* operator()(int n) const {
      const int row = at + n;
      if (row >= end) return nullptr;
      if constexpr (kPage == 0) return rows + row * row_stride;
      constexpr int kRowsOfPage = kPage > 0 ? kPage : 1;
      return rows + table[row / kRowsOfPage] * page_stride + row % kRowsOfPage * row_stride;
    }
  };
  template <bool kPacked>
  __device__ int first_of() const {
    if constexpr (kPacked) return tensors.column_starts[item.b];
    return -1;
  }
};

template <class C, class E, class L>
struct LayersOfCopies {
  using Tiles = ForwardTiles<CopierOfBlock<C, E, L>>;
  using Blocks =
      FollowingBlocks<typename Which<C::kBand, BlocksOfBand<Tiles>, ListedBlocks<Tiles>>::Type>;
  using Copies = CopiesOfBlock<NumberedItems<Blocks>>;
};

}  // namespace kernels
