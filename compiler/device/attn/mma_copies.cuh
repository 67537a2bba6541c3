// Copies of the forward by all threads of a block: queries of its tile, and blocks of
// keys and values as they are needed. Rows that are not there become zeros, also values past the
// length of a batch, so that a product sees none that are NaN.
#pragma once

#include "attn/forward_items.cuh"
#include "attn/mma_panels.cuh"
#include "attn/which.cuh"

namespace kernels {

// Elements of q, k and v in memory.
template <class C>
using StoredFloat = typename Which<C::kNarrow, typename C::Narrow, typename C::Float>::Type;
template <class C, long long kColumn, long long kStrides>
using FormatOfQueries = RowFormat<StoredFloat<C>, typename C::Float, kColumn, kStrides>;
template <class C, class OfCache, long long kColumn, long long kStrides>
using FormatOf = RowFormat<typename Which<C::kNarrowKeys, OfCache, StoredFloat<C>>::Type,
                           typename C::Float, kColumn, kStrides>;

// Where rows are in memory.
template <class Format>
ATTN_INLINE auto stored_rows(const unsigned short* wide, const unsigned char* narrow) {
  if constexpr (sizeof(typename Format::Bits) == 1)
    return reinterpret_cast<const typename Format::Bits*>(narrow);
  else
    return wide;
}

// Strides that are bound are multiples of 16 bytes.
constexpr long long kBoundStrides = 16;

// Strides of queries.
template <class C>
ATTN_INLINE RowStrides strides_of_queries(const ForwardTensors& tensors) {
  if constexpr (C::kBoundQueries)
    return tensors.query_strides;
  else
    return {C::kQueryHeadStride, C::kQueryRowStride};
}

// Those of keys and values, and of rows of their page tables. Without pages, batches are pages.
template <class C>
ATTN_INLINE PoolStrides strides_of_keys(const ForwardTensors& tensors) {
  if constexpr (C::kBoundKeys)
    return tensors.key_strides;
  else
    return {C::kKeyPageStride, C::kKeyHeadStride, C::kKeyRowStride, C::kKeyPages};
}
template <class C>
ATTN_INLINE PoolStrides strides_of_values(const ForwardTensors& tensors) {
  if constexpr (C::kBoundValues)
    return tensors.value_strides;
  else
    return {C::kValuePageStride, C::kValueHeadStride, C::kValueRowStride, C::kValuePages};
}

// Rows of a tile of queries.
template <class C>
struct RowsOfQueries {
  static constexpr long long kStrides =
      C::kBoundQueries ? kBoundStrides
                       : C::kQueryBatchStride | C::kQueryHeadStride | C::kQueryRowStride;
  using Format = FormatOfQueries<C, C::kQueryColumnStride, kStrides>;
  const typename Format::Bits* first;  // of the tile
  int rows;                            // that there are from it on
  RowStrides by;

  __device__ bool has(int r) const { return r / C::kPack < rows; }
  // Row r + n.
  __device__ const typename Format::Bits* row(int r, int n) const {
    return first + (r + n) / C::kPack * by.row + (r + n) % C::kPack * by.head;
  }
};

// Those in pages: `pages` are those of the batch.
template <class Format_, int kPage>
struct PagedRowsOfBlock {
  using Format = Format_;
  const typename Format::Bits* pool;
  const int* pages;
  int at, rows;
  PoolStrides by;

  __device__ bool has(int row) const { return row < rows; }
  __device__ const typename Format::Bits* row(int row, int n) const {
    if (!has(row + n)) return pool;  // entries past the length are not read
    const int key = at + row + n;
    return pool + pages[key / kPage] * by.page + key % kPage * by.row;
  }
};

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
  static constexpr int kThreads = 128 * C::kGroups / C::kStrips;

  Item item;
  Blocks blocks;
  int at;  // the first key of the block that is copied; -1: there is none

  // Finds the tile.
  __device__ void begin() {
    item = Base::item_of(Base::read_item(Base::first_item()));
    blocks = Base::blocks_of(item);
  }
  // What tells rows of the tile (TileRows::set). It is found again where it is needed again: that
  // takes fewer registers.
  __device__ void tell_tile(unsigned (&words)[2]) const {
    const Item of = Base::item_of(Base::read_item(unknown(Base::first_item())));
    words[0] = of.b * C::kUnits + of.unit;
    words[1] = of.tile.tile * C::kSplits + of.part;
  }

  __device__ void copy_queries(int stage = 0) const {
    const int first = item.tile.tile * C::kRowsOfTile;
    using Rows = RowsOfQueries<C>;
    const RowStrides by = strides_of_queries<C>(tensors);
    const auto* const of_unit =
        stored_rows<typename Rows::Format>(tensors.query_rows, tensors.query_bytes) +
        item.unit * C::kPack * by.head +
        (C::kThdQ ? tensors.row_starts[item.b] * by.row : item.b * C::kQueryBatchStride);
    copy_rows<kThreads, S::kTileRows, C::kTaken, C::kDepth, C::kDepthPanel>(
        stages.query(stage),
        Rows{of_unit + first * by.row, expressions.queries(item.b) - first, by});
  }

  // Copies the keys of the next block to a stage, if there is one. Returns its word.
  __device__ unsigned copy_keys(int stage) {
    at = -1;
    if (blocks.left == 0) return kEndOfStream;
    at = blocks.key;
    const unsigned word = at | Base::begin_block(blocks);
    constexpr long long kStrides =
        C::kBoundKeys ? kBoundStrides : C::kKeyPageStride | C::kKeyHeadStride | C::kKeyRowStride;
    using Format = FormatOf<C, typename C::Keys, C::kKeyColumnStride, kStrides>;
    const PoolStrides by = strides_of_keys<C>(tensors);
    copy_rows<kThreads, C::kKeys, C::kTaken, C::kDepth, C::kDepthPanel>(
        stages.key(stage), rows_of<Format, C::kKeyPage, C::kThdK>(
                               stored_rows<Format>(tensors.key_rows, tensors.key_bytes),
                               tensors.key_table, by, blocks.keys));
    if constexpr (C::kTokenScales) copy_scales(stages.scales(stage));
    Base::end_block(blocks);
    return word;
  }
  // The values of the same block.
  __device__ void copy_values(int stage) const {
    if (at < 0) return;
    constexpr long long kStrides =
        C::kBoundValues ? kBoundStrides
                        : C::kValuePageStride | C::kValueHeadStride | C::kValueRowStride;
    using Format = FormatOf<C, typename C::Values, C::kValueColumnStride, kStrides>;
    const PoolStrides by = strides_of_values<C>(tensors);
    copy_rows<kThreads, C::kKeys, C::kStored, C::kWidth, C::kWidthPanel>(
        stages.value(stage), rows_of<Format, C::kValuePage, C::kThdV>(
                                 stored_rows<Format>(tensors.value_rows, tensors.value_bytes),
                                 tensors.value_table, by, blocks.used));
  }

 private:
  // Copies the scales of the keys of a block, then those of its values.
  __device__ void copy_scales(unsigned to) const {
    static_assert(!C::kTokenScales || kThreads >= C::kKeys, "a thread has a key");
    if (threadIdx.x >= C::kKeys) return;
    const int row = at + (int)threadIdx.x;
    copy_scale<C::kKeyPage, C::kKeyScalePage, C::kKeyScaleRow, C::kThdK>(
        to, tensors.key_scales + head() * C::kKeyScaleHead,
        tensors.key_table + item.b * strides_of_keys<C>(tensors).table, row, row < blocks.keys);
    copy_scale<C::kValuePage, C::kValueScalePage, C::kValueScaleRow, C::kThdV>(
        to + 4 * C::kKeys, tensors.value_scales + head() * C::kValueScaleHead,
        tensors.value_table + item.b * strides_of_values<C>(tensors).table, row, row < blocks.used);
  }
  // That of a row, or 0 if there is none.
  template <int kPage, long long kPageStride, long long kStride, bool kPacked>
  __device__ void copy_scale(unsigned to, const float* of_head, const int* pages, int row,
                             bool has) const {
    const float* from = of_head;
    if constexpr (kPage > 0) {
      if (has) from += pages[row / kPage] * kPageStride + row % kPage * kStride;
    } else {
      from += (kPacked ? tensors.column_starts[item.b] * kStride : item.b * kPageStride) +
              row * kStride;
    }
    copy_piece<4>(to + 4 * threadIdx.x, from, has ? 4 : 0);
  }
  // Rows of the block, of a batch with so many of them.
  template <class Format, int kPage, bool kPacked>
  __device__ auto rows_of(const typename Format::Bits* rows, const int* table,
                          const PoolStrides& by, int end) const {
    const auto* const of_head = rows + head() * by.head;
    if constexpr (kPage > 0) {
      return PagedRowsOfBlock<Format, kPage>{of_head, table + item.b * by.table, at, end - at, by};
    } else {
      const auto* const of_batch =
          of_head + (kPacked ? tensors.column_starts[item.b] * by.row : item.b * by.page);
      return AdjacentRowsOfBlock<Format>{of_batch + at * by.row, end - at, by.row};
    }
  }
  __device__ int head() const { return item.unit * C::kPack / C::kHeadsOfKey; }
};

template <class C, class E, class L>
struct LayersOfCopies {
  using Tiles = ForwardTiles<CopierOfBlock<C, E, L>>;
  using Blocks =
      FollowingBlocks<typename Which<C::kBand, BlocksOfBand<Tiles>, ListedBlocks<Tiles>>::Type>;
  using Copies = CopiesOfBlock<NumberedItems<Blocks>>;
};

}  // namespace kernels
