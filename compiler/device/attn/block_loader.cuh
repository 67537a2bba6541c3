// The rows of a block of keys or values, as the forward copies them to shared memory: of a batch,
// of a packed sequence, of pages, of small pages row by row, or of a patch. A new layout of keys
// has its place here.
#pragma once

#include "attn/block_rows.cuh"
#include "attn/chosen_rows.cuh"
#include "attn/forward_stages.cuh"
#include "attn/forward_tensors.cuh"
#include "attn/found_ahead.cuh"
#include "attn/gathered_rows.cuh"
#include "attn/packed_rows.cuh"
#include "attn/patches.cuh"
#include "attn/which.cuh"

namespace kernels {

// What differs between keys and values.
template <class C>
struct KeySide {
  using S = Stages<C>;
  static constexpr bool kGathers = C::kGatherKeys, kThd = C::kThdK;
  static constexpr int kPage = C::kKeyPage, kPiece = kPage > 0 ? C::kKeyPiece : C::kKeys;
  static constexpr bool kGrouped = C::kGroupedKeys;
  static constexpr int kStored = C::kTaken, kColumns = C::kDepth, kPanel = C::kDepthPanel;
  static constexpr int kPanels = S::kDepthPanels, kRowBytes = S::kKeyRow;
  static constexpr bool kBound = C::kBoundKeys;

  static __device__ const TensorMap& map(const ForwardTensors& tensors) { return *tensors.k; }
  // The pages of a batch.
  static __device__ const int* table(const ForwardTensors& tensors, int b) {
    if constexpr (kBound)
      return tensors.key_table + b * tensors.key_strides.table;
    else
      return tensors.key_table + b * C::kKeyPages;
  }
  static __device__ PoolStrides strides(const ForwardTensors& tensors) {
    if constexpr (kBound)
      return tensors.key_strides;
    else
      return {C::kKeyPageStride, C::kKeyHeadStride, C::kKeyRowStride};
  }
  static __device__ const unsigned short* rows(const ForwardTensors& tensors) {
    return tensors.key_rows;
  }
  static __device__ const unsigned char* bytes(const ForwardTensors& tensors) {
    return tensors.key_bytes;
  }
  static __device__ const float* scales(const ForwardTensors& tensors, int head) {
    return tensors.key_scales + head * C::kKeyScaleHead;
  }
  static constexpr long long kScalePage = C::kKeyScalePage, kScaleRow = C::kKeyScaleRow;
};
template <class C>
struct ValueSide {
  using S = Stages<C>;
  static constexpr bool kGathers = C::kGatherValues, kThd = C::kThdV;
  static constexpr int kPage = C::kValuePage, kPiece = kPage > 0 ? C::kValuePiece : C::kKeys;
  static constexpr bool kGrouped = C::kGroupedValues;
  static constexpr int kStored = C::kStored, kColumns = C::kWidth, kPanel = C::kWidthPanel;
  static constexpr int kPanels = S::kWidthPanels, kRowBytes = S::kValueRow;
  static constexpr bool kBound = C::kBoundValues;

  static __device__ const TensorMap& map(const ForwardTensors& tensors) { return *tensors.v; }
  // The pages of a batch.
  static __device__ const int* table(const ForwardTensors& tensors, int b) {
    if constexpr (kBound)
      return tensors.value_table + b * tensors.value_strides.table;
    else
      return tensors.value_table + b * C::kValuePages;
  }
  static __device__ PoolStrides strides(const ForwardTensors& tensors) {
    if constexpr (kBound)
      return tensors.value_strides;
    else
      return {C::kValuePageStride, C::kValueHeadStride, C::kValueRowStride};
  }
  static __device__ const unsigned short* rows(const ForwardTensors& tensors) {
    return tensors.value_rows;
  }
  static __device__ const unsigned char* bytes(const ForwardTensors& tensors) {
    return tensors.value_bytes;
  }
  static __device__ const float* scales(const ForwardTensors& tensors, int head) {
    return tensors.value_scales + head * C::kValueScaleHead;
  }
  static constexpr long long kScalePage = C::kValueScalePage, kScaleRow = C::kValueScaleRow;
};

// Whether pages, and what lists name, are looked up before their turn, where a step is short beside
// what that takes: then a thread keeps a loader from block to block, and begins it for each tile.
template <class C>
constexpr bool kLooksAhead = C::kValuesOfKeys&& C::kShares > 1 &&
                             (C::kGatherKeys || C::kKeyPage > 0);

// Copies adjacent rows, or pages, by TMA. `head`: of keys; `at`: the first key. Strides of pages in
// groups are in steps of the map.
template <class C, class Side, int kLanes>
struct LoadedRows {
  using Rows =
      BlockRows<C::kKeys, Side::kPage, Side::kPiece, Side::kPanels, Side::kGrouped, kLanes>;
  typename Which<kLooksAhead<C>, FoundAhead<Rows, C::kKeys>, Rows>::Type rows;

  __device__ void begin() { rows.begin(); }
  __device__ void find(const ForwardTensors& tensors, int b, int at, int keys) {
    const int* const table = Side::table(tensors, b);
    const int steps = (int)Side::strides(tensors).page;
    if constexpr (kLooksAhead<C>)
      rows.find(at, [&](Rows& of, int first) { of.find(table, steps, b, first, keys); });
    else
      rows.find(table, steps, b, at, keys);
  }
  __device__ void copy(unsigned to, const ForwardTensors& tensors, unsigned full, int at, int head,
                       int) const {
    rows.template copy<Side::kPanel, Side::kRowBytes, C::kReadOnce>(
        to, Side::map(tensors), full, at, head, (int)Side::strides(tensors).head);
  }
};
// Copies rows of a packed sequence, from a place in the map on (packed_rows.cuh).
template <class C, class Side, int kLanes>
struct LoadedPackedRows {
  __device__ void find(const ForwardTensors&, int, int, int) {}
  __device__ void copy(unsigned to, const ForwardTensors& tensors, unsigned full, int place,
                       int head, int last) const {
    for (int panel = 0; panel < Side::kPanels; ++panel) {
      if (kLanes > 1 && threadIdx.x != 0) break;
      copy_box(to + panel * C::kKeys * Side::kRowBytes, Side::map(tensors), full,
               panel * Side::kPanel, place, head, last, PackedRows::kSteps);
    }
    if (kLanes > 1) __syncwarp();  // as BlockRows::copy
  }
};
template <class Side, class Rows>
static __device__ const unsigned char* address_of(const ForwardTensors& tensors, const Rows& rows,
                                                  int n, int row, int head) {
  const PoolStrides by = Side::strides(tensors);
  const long long place = rows.place(n, row, by.page, by.row);
  return place < 0 ? nullptr : Side::bytes(tensors) + head * by.head + place;
}
// Copies row by row.
template <class C, class Side>
struct LoadedRowByRow {
  static constexpr int kUnrolled = C::kGroups * C::kShares == 1 ? 8 : 2;
  using Rows =
      GatheredRows<C::kKeys, Side::kPage, Side::kStored, Side::kColumns, Side::kPanel, kUnrolled>;
  typename Which<kLooksAhead<C>, FoundAhead<Rows, C::kKeys>, Rows>::Type rows;

  __device__ void begin() { rows.begin(); }
  __device__ void find(const ForwardTensors& tensors, int b, int at, int keys) {
    const int* const table = Side::table(tensors, b);
    if constexpr (kLooksAhead<C>)
      rows.find(at, [&](Rows& of, int first) { of.find(table, first, keys); });
    else
      rows.find(table, at, keys);
  }
  __device__ void copy(unsigned to, const ForwardTensors& tensors, unsigned full, int at, int head,
                       int) const {
    const PoolStrides by = Side::strides(tensors);
    rows.template copy<kLooksAhead<C>>(to, Side::rows(tensors) + head * by.head, full, at, by.page,
                                       by.row);
  }
  // The bytes of row n of the warp, `row` of the batch; null: there are none. All lanes call it.
  __device__ const unsigned char* address(const ForwardTensors& tensors, int n, int row,
                                          int head) const {
    return address_of<Side>(tensors, rows, n, row, head);
  }
};
// Copies the rows that lists name.
template <class C, class Side>
struct LoadedChosenRows {
  static constexpr int kUnrolled = C::kGroups * C::kShares == 1 ? 8 : 2;
  template <template <int, int, int, int, int, int> class Rows>
  using Of = Rows<C::kKeys, C::kCachePage, Side::kStored, Side::kColumns, Side::kPanel, kUnrolled>;
  typename Which<kLooksAhead<C>, Of<ChosenRowsAhead>, Of<ChosenRows>>::Type rows;

  __device__ void begin() { rows.begin(); }
  // Row `b` of all batches.
  __device__ void find(const ForwardTensors& tensors, int b, int at, int keys) {
    const int batch = b / C::kRowsOfCache;
    long long pages = C::kCachePages;
    if constexpr (Side::kBound) pages = Side::strides(tensors).table;
    int keys_of_batch = C::kCacheKeys;
    if (tensors.cache_lengths) keys_of_batch = min(keys_of_batch, tensors.cache_lengths[batch]);
    const int* const table = C::kCachePage > 0 ? tensors.key_table + batch * pages : nullptr;
    rows.find(tensors.chosen + (long long)b * C::kColumns, {batch, keys_of_batch, table}, at, keys);
  }
  __device__ void copy(unsigned to, const ForwardTensors& tensors, unsigned full, int, int head,
                       int) const {
    const PoolStrides by = Side::strides(tensors);
    rows.template copy<kLooksAhead<C>>(to, Side::rows(tensors) + head * by.head, full, by.page,
                                       by.row);
  }
  // The bytes of row n of the warp, or null.
  __device__ const unsigned char* address(const ForwardTensors& tensors, int n, int row,
                                          int head) const {
    return address_of<Side>(tensors, rows, n, row, head);
  }
};
// Copies a patch.
template <class C, class Side>
struct LoadedPatch {
  __device__ void find(const ForwardTensors&, int, int, int) {}
  __device__ void copy(unsigned to, const ForwardTensors& tensors, unsigned full, int at, int head,
                       int b) const {
    const TensorMap& map = Side::map(tensors);
    const Place first = patch_of_keys<C>(at);
    for (int panel = 0; panel < Side::kPanels; ++panel) {
      copy_box(to + panel * C::kKeys * (2 * Side::kPanel), map, full, panel * Side::kPanel, first.x,
               first.y, head, b);
    }
  }
};

template <class C, class Side, int kLanes>
using AdjacentRows = typename Which<Side::kThd, LoadedPackedRows<C, Side, kLanes>,
                                    LoadedRows<C, Side, kLanes>>::Type;
template <class C, class Side>
using RowByRow =
    typename Which<(C::kCacheKeys > 0), LoadedChosenRows<C, Side>, LoadedRowByRow<C, Side>>::Type;
template <class C, class Side, int kLanes>
using BlockLoader = typename Which<
    C::kPatches, LoadedPatch<C, Side>,
    typename Which<Side::kGathers, RowByRow<C, Side>, AdjacentRows<C, Side, kLanes>>::Type>::Type;

}  // namespace kernels
