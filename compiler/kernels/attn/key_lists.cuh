// Lists of key blocks (forward.cuh) for masks that read tensors, made by the GPU before the kernel
// that walks them. Constants are those of forward.cuh, and kLists, kCellKeys, kCells and kMostRuns.
#pragma once

#include "attn/forward.cuh"
#include "attn/intervals.cuh"

namespace kernels {

enum CellKind : unsigned char { kEmptyCell, kPartialCell, kFullCell };

// The cells of a tile, of which a warp looks at 32.
template <class C, class E>
struct CellsOfTile {
  const E& expressions;
  int b, h;        // for which masks differ
  int first, end;  // rows
  int lane = threadIdx.x % 32;

  // What masks show of a cell: all lanes look until they have seen a visible and a hidden score.
  __device__ int look(int cell) const {
    const int column = cell * C::kCellKeys + lane % C::kCellKeys;
    bool any = false, all = true;
    for (int row = first; row < end; row += 32 / C::kCellKeys) {
      const int own = row + lane / C::kCellKeys;
      if (own < end && column < C::kColumns) {
        const bool shown = expressions.mask(b, h, own, column);
        any |= shown, all &= shown;
      }
      if (__any_sync(~0u, any) && __any_sync(~0u, !all)) break;
    }
    const bool empty = !__any_sync(~0u, any), full = __all_sync(~0u, all);
    return empty ? kEmptyCell : full ? kFullCell : kPartialCell;
  }

  // Whether masks show any or all scores of this lane's cell, as far as intervals tell.
  __device__ Interval visible(int cell) const {
    constexpr int kRowValues = E::kRowValues, kColumnValues = E::kColumnValues;
    Interval rows[kRowValues + 1], columns[kColumnValues + 1];  // an array has an element
    int values[(kRowValues > kColumnValues ? kRowValues : kColumnValues) + 1];
    for (Interval& x : rows) x = {kHighestInt, kLowestInt};
    for (Interval& x : columns) x = {kHighestInt, kLowestInt};
    const auto add = [&values](Interval* to, int count) {
      for (int i = 0; i < count; ++i) {
        to[i] = around(to[i], point(values[i]));
      }
    };
    for (int row = first + lane; row < end; row += 32) {
      expressions.row_values(b, h, row, values);
      add(rows, kRowValues);
    }
    for (int i = 0; i < kRowValues; ++i) {
      rows[i].low = __reduce_min_sync(~0u, (int)rows[i].low);
      rows[i].high = __reduce_max_sync(~0u, (int)rows[i].high);
    }
    for (int i = 0; i < C::kCellKeys; ++i) {
      expressions.column_values(b, h, ::min(cell * C::kCellKeys + i, C::kColumns - 1), values);
      add(columns, kColumnValues);
    }
    return expressions.visible(b, h, rows, columns);
  }
};

// A warp for 32 cells of each of [kLists,kTiles]. Intervals decide what they can.
template <class C, class E>
ATTN_INLINE void look_at_cells(const E& expressions, unsigned char* cells) {
  constexpr int kSplits = (C::kCells + 31) / 32;
  const int n = (int)(attn_thread() / 32), lane = threadIdx.x % 32;
  if (n >= C::kLists * C::kTiles * kSplits) return;
  const int of_list = n / kSplits % C::kTiles, list = n / kSplits / C::kTiles;
  const int heads = C::kListsOfUnit ? C::kUnits : 1, first = of_list * C::kRowsOfTile;
  const CellsOfTile<C, E> tile{expressions, list / heads, list % heads, first,
                               ::min(first + C::kRowsOfTile, C::kRows)};
  const int base = n % kSplits * 32, cell = base + lane;
  int kind = kPartialCell;
  bool decided = cell >= C::kCells;
  if constexpr (E::kIntervals) {
    const Interval visible = tile.visible(cell);
    kind = visible.high == 0 ? kEmptyCell : kFullCell;
    decided |= is_point(visible);
  }
  for (unsigned open = __ballot_sync(~0u, !decided); open != 0; open &= open - 1) {
    const int at = __ffs(open) - 1, found = tile.look(base + at);
    if (lane == at) kind = found;
  }
  if (cell < C::kCells) cells[(long long)(n / kSplits) * C::kCells + cell] = (unsigned char)kind;
}

// Runs of blocks, appended to those of a tile. All lanes of a warp have the same.
template <class C>
struct RunWriter {
  Tile tile;
  Run* runs;
  Run run{0, 0};

  __device__ void add(int key, bool masked) {
    if (run.blocks == 0 || run.key + run.blocks * C::kKeys != (key | (int)masked)) {
      finish();
      run = {key | (int)masked, 0};
    }
    ++run.blocks, ++tile.blocks;
  }
  __device__ void finish() {
    if (run.blocks == 0) return;
    if (threadIdx.x % 32 == 0) runs[tile.first + tile.runs] = run;
    ++tile.runs;
  }
};

// A warp for each of [kLists,kTiles]: the runs of a tile, of which there are at most kMostRuns.
template <class C>
ATTN_INLINE void list_blocks(const unsigned char* cells, Tile* tiles, Run* runs) {
  using Bits = unsigned long long;
  constexpr int kPerBlock = C::kKeys / C::kCellKeys, kLanes = 32;
  const int n = (int)(attn_thread() / kLanes), lane = threadIdx.x % kLanes;
  if (n >= C::kLists * C::kTiles) return;
  const unsigned char* own = cells + (long long)n * C::kCells;
  RunWriter<C> writer{{n % C::kTiles, n * C::kMostRuns, 0, 0}, runs};
  Bits seen = 0, masked = 0;  // of the 64 cells from `base` on
  const auto read = [&](int from) {
    const int kind = from + lane < C::kCells ? own[from + lane] : kEmptyCell;
    seen |= (Bits)__ballot_sync(~0u, kind != kEmptyCell) << kLanes;
    masked |= (Bits)__ballot_sync(~0u, kind != kFullCell && from + lane < C::kCells) << kLanes;
  };
  read(0);
  for (int base = 0, at = 0; base < C::kCells; base += kLanes) {
    seen >>= kLanes, masked >>= kLanes;
    read(base + kLanes);
    while (at < base + kLanes) {
      const Bits ahead = seen >> (at - base);
      at = ahead == 0 ? base + kLanes : at + __ffsll((long long)ahead) - 1;
      if (at >= base + kLanes) break;
      const Bits block = ((Bits)1 << kPerBlock) - 1;
      writer.add(at * C::kCellKeys, (masked >> (at - base) & block) != 0);
      at += kPerBlock;
    }
  }
  writer.finish();
  if (lane == 0) tiles[n] = writer.tile;
}

// A thread for each of [kLists,kTiles]: sorts the tiles of each list, the longest first.
template <class C>
ATTN_INLINE void sort_tiles(const Tile* tiles, Tile* sorted) {
  const int n = (int)attn_thread();
  if (n >= C::kLists * C::kTiles) return;
  const int first = n / C::kTiles * C::kTiles;
  const Tile own = tiles[n];
  int rank = 0;
  for (int i = first; i < first + C::kTiles; ++i) {
    const int blocks = tiles[i].blocks;
    rank += blocks > own.blocks || (blocks == own.blocks && i < n);
  }
  sorted[first + rank] = own;
}

}  // namespace kernels
