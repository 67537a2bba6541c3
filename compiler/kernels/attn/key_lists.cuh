// Lists of key blocks (forward.cuh) for masks that read tensors, made by the GPU before the kernel
// that walks them. A block of threads lists what kTilesOfBlock tiles see:
//
//   rows    the least and the largest values that rows have: all rows of a tile, and each strip of it
//   cells   those of the columns of 32 cells, a lane each, and with both what masks show of the
//           cells; where intervals do not tell, the warp looks at scores
//   runs    of adjacent blocks of keys, a warp for each tile
//   order   the last block of threads that is done with a list sorts its tiles, the longest first
//
// Constants are those of forward.cuh, and kLists, kCellKeys, kCells, kMostRuns, kTilesOfBlock,
// kListsDone. Loops are not unrolled: a kernel that runs once waits for its instructions.
#pragma once

#include "attn/forward.cuh"
#include "attn/intervals.cuh"

namespace kernels {

constexpr int kListThreads = 512;  // of a block

// What masks show of 32 cells, a bit each: any score, and not all scores.
struct alignas(8) CellBits {
  unsigned seen, masked;
};

// What is made. `cells`: of [lists,tiles]; `done`: blocks of threads that are done with each list, 0
// at first.
struct KeyLists {
  CellBits* cells;
  Tile *tiles, *sorted;
  Run* runs;
  int* done;
};

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

// kCount keys, a power of 2, descending, by a block of threads (a bitonic sort). Pairs that are up to
// 32 apart are those of one warp.
template <int kCount>
ATTN_INLINE void sort_descending(unsigned long long* keys) {
#pragma unroll 1
  for (int size = 2; size <= kCount; size *= 2) {
#pragma unroll 1
    for (int step = size / 2; step > 0; step /= 2) {
#pragma unroll 1
      for (int i = threadIdx.x; i < kCount / 2; i += kListThreads) {
        const int low = (i & -step) + i, high = low + step;  // which differ in the bit of the step
        const unsigned long long x = keys[low], y = keys[high];
        const bool descends = (low & size) == 0;
        if ((x < y) == descends) keys[low] = y, keys[high] = x;
      }
      const int next = step > 1 ? step / 2 : size;
      if (step > 32 || next > 32) __syncthreads();
      else __syncwarp();
    }
  }
  __syncthreads();
}

// The least and the largest value.
struct Bounds {
  int low, high;
};

template <class C, class E>
struct ListMaker {
  static constexpr int kWarps = kListThreads / 32;
  static constexpr int kBlocksOfList = (C::kTiles + C::kTilesOfBlock - 1) / C::kTilesOfBlock;
  static constexpr int kWords = (C::kCells + 31) / 32;  // of a tile
  static constexpr int kStripRows = 16, kStrips = (C::kRowsOfTile + kStripRows - 1) / kStripRows;
  static constexpr int kHeads = C::kListsOfUnit ? C::kUnits : 1;
  static constexpr int kRowValues = E::kRowValues, kColumnValues = E::kColumnValues;
  struct Rows {
    Bounds of[kStrips + 1][kRowValues + 1];  // of strips, then of all; an array has an element
  };

  const E& expressions;
  const KeyLists lists;
  Rows* rows;  // of each tile, in shared memory
  int list = blockIdx.x / kBlocksOfList, first = blockIdx.x % kBlocksOfList * C::kTilesOfBlock;
  int tiles = ::min(C::kTilesOfBlock, C::kTiles - first);
  int b = list / kHeads, h = list % kHeads;  // for which masks differ
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  __device__ void run() const {
    if constexpr (E::kIntervals) {
      find_strips();
      __syncthreads();
      if constexpr (kRowValues > 0) find_rows();
      __syncthreads();
    }
#pragma unroll 1
    for (int cell = warp * 32; cell < C::kCells; cell += kListThreads) look_at_cells(cell);
    __syncthreads();
    for (int t = warp; t < tiles; t += kWarps) list_blocks(t);
    if (is_last()) sort_tiles();
  }

 private:
  __device__ int first_row(int t) const { return (first + t) * C::kRowsOfTile; }
  __device__ int end_of_rows(int t) const {
    return ::min(first_row(t) + C::kRowsOfTile, C::kRows);
  }
  __device__ int index(int t) const { return list * C::kTiles + first + t; }

  // What `kLanes` adjacent lanes have together.
  template <int kLanes>
  static __device__ Bounds of_lanes(Bounds own) {
    for (int other = 1; other < kLanes; other *= 2) {
      own.low = ::min(own.low, __shfl_xor_sync(~0u, own.low, other));
      own.high = ::max(own.high, __shfl_xor_sync(~0u, own.high, other));
    }
    return own;
  }

  // Half a warp for each strip. Rows past the end are the last one.
  __device__ void find_strips() const {
    int values[kRowValues + 1];
#pragma unroll 1
    for (int two = 2 * warp; two < tiles * kStrips; two += 2 * kWarps) {
      const int strip = ::min(two + lane / kStripRows, tiles * kStrips - 1);
      const int t = strip / kStrips, of_tile = strip % kStrips * kStripRows + lane % kStripRows;
      expressions.row_values(b, h, ::min(first_row(t) + of_tile, end_of_rows(t) - 1), values);
      for (int i = 0; i < kRowValues; ++i) {
        rows[t].of[strip % kStrips][i] = of_lanes<kStripRows>({values[i], values[i]});
      }
    }
  }

  __device__ void find_rows() const {
#pragma unroll 1
    for (int n = threadIdx.x; n < tiles * kRowValues; n += kListThreads) {
      Rows& all = rows[n / kRowValues];
      const int i = n % kRowValues;
      Bounds bounds = all.of[0][i];
      for (int strip = 1; strip < kStrips; ++strip) {
        bounds.low = ::min(bounds.low, all.of[strip][i].low);
        bounds.high = ::max(bounds.high, all.of[strip][i].high);
      }
      all.of[kStrips][i] = bounds;
    }
  }

  // Those of this lane's cell of the 32 from `cell` on. Four lanes read the columns of a cell, so that
  // a warp reads adjacent ones, and hand what they found to the cell's lane.
  __device__ void find_columns(int cell, Interval* columns) const {
    constexpr int kOfCell = 4, kAtOnce = 32 / kOfCell;
    int values[kColumnValues + 1];
    for (int from = 0; from < 32; from += kAtOnce) {
      Bounds some[kColumnValues + 1];
      const int column = (cell + from + lane / kOfCell) * C::kCellKeys + lane % kOfCell;
      for (int i = 0; i < C::kCellKeys; i += kOfCell) {
        expressions.column_values(b, h, ::min(column + i, C::kColumns - 1), values);
        for (int j = 0; j < kColumnValues; ++j) {
          some[j] = i == 0 ? Bounds{values[j], values[j]}
                           : Bounds{::min(some[j].low, values[j]), ::max(some[j].high, values[j])};
        }
      }
      for (int j = 0; j < kColumnValues; ++j) {
        const Bounds found = of_lanes<kOfCell>(some[j]);
        const int low = __shfl_sync(~0u, found.low, lane % kAtOnce * kOfCell);
        const int high = __shfl_sync(~0u, found.high, lane % kAtOnce * kOfCell);
        if (lane / kAtOnce == from / kAtOnce) columns[j] = {low, high};
      }
    }
  }

  // What is known of the scores of a cell.
  struct Shown {
    bool any = true, all = false;  // any may be shown; all are
    bool open = true;              // it is not known whether any is
  };

  // What masks show of 32 cells and the rows of each tile.
  __device__ void look_at_cells(int cell) const {
    Interval columns[kColumnValues + 1];
    if constexpr (E::kIntervals) find_columns(cell, columns);
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
      Shown shown;
      if constexpr (E::kIntervals) shown = shown_by_intervals(t, columns);
      if (cell + lane >= C::kCells) shown = {false, true, false};
#pragma unroll 1
      for (unsigned open = __ballot_sync(~0u, shown.open); open != 0; open &= open - 1) {
        const int at = __ffs(open) - 1;
        const Shown found = look(t, cell + at);
        if (lane == at) shown = found;
      }
      const unsigned seen = __ballot_sync(~0u, shown.any), masked = __ballot_sync(~0u, !shown.all);
      if (lane == 0) lists.cells[(long long)index(t) * kWords + cell / 32] = {seen, masked};
    }
  }

  __device__ Interval visible(int t, int strip, const Interval* columns) const {
    Interval own[kRowValues + 1];
    for (int i = 0; i < kRowValues; ++i) {
      own[i] = {rows[t].of[strip][i].low, rows[t].of[strip][i].high};
    }
    return expressions.visible(b, h, own, columns);
  }

  // By those of all rows; if they do not tell, by those of each strip. A cell of which one strip is
  // shown, and others may not be, counts as partial.
  __device__ Shown shown_by_intervals(int t, const Interval* columns) const {
    const Interval whole = visible(t, kStrips, columns);
    Shown shown{whole.high != 0, whole.low != 0, !is_point(whole)};
    if (kStrips == 1 || !__any_sync(~0u, shown.open)) return shown;
    bool some = false, any = false, all = true;
#pragma unroll 1
    for (int strip = 0; strip < kStrips; ++strip) {
      const Interval of_strip = visible(t, strip, columns);
      some |= of_strip.low != 0, any |= of_strip.high != 0, all &= of_strip.low != 0;
    }
    return {any, all, any && !some};
  }

  // All lanes look at the scores of a cell until they have seen a visible and a hidden one.
  __device__ Shown look(int t, int cell) const {
    constexpr int kRowsAtOnce = 32 / C::kCellKeys, kTimes = 4;
    const int column = cell * C::kCellKeys + lane % C::kCellKeys;
    const int last = end_of_rows(t) - 1;
    bool any = false, all = true;
#pragma unroll 1
    for (int row = first_row(t); row <= last; row += kTimes * kRowsAtOnce) {
      for (int i = 0; i < kTimes; ++i) {
        const int own = ::min(row + i * kRowsAtOnce + lane / C::kCellKeys, last);
        const bool shown = expressions.mask(b, h, own, ::min(column, C::kColumns - 1));
        any |= shown, all &= shown;
      }
      if (__any_sync(~0u, any) && __any_sync(~0u, !all)) break;
    }
    return {__any_sync(~0u, any), __all_sync(~0u, all), false};
  }

  // A warp's runs of a tile, of which there are at most kMostRuns.
  __device__ void list_blocks(int t) const {
    using Bits = unsigned long long;
    constexpr int kPerBlock = C::kKeys / C::kCellKeys;
    constexpr Bits kBlock = ((Bits)1 << kPerBlock) - 1;
    const CellBits* words = lists.cells + (long long)index(t) * kWords;
    RunWriter<C> writer{{first + t, index(t) * C::kMostRuns, 0, 0}, lists.runs};
    int at = 0;
    CellBits word = words[0];
#pragma unroll 1
    for (int i = 0; i < kWords; ++i) {
      const CellBits next = i + 1 < kWords ? words[i + 1] : CellBits{0, 0};
      const Bits seen = word.seen | (Bits)next.seen << 32;
      const Bits masked = word.masked | (Bits)next.masked << 32;
      while (at < 32) {
        const Bits ahead = seen >> at;
        at = ahead == 0 ? 32 : at + __ffsll((long long)ahead) - 1;
        if (at >= 32) break;
        writer.add((i * 32 + at) * C::kCellKeys, (masked >> at & kBlock) != 0);
        at += kPerBlock;
      }
      at -= 32, word = next;
    }
    writer.finish();
    if (lane == 0) lists.tiles[index(t)] = writer.tile;
  }

  __device__ bool is_last() const {
    __shared__ int before;
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      before = atomicAdd(lists.done + list, 1);
      __threadfence();
    }
    __syncthreads();
    return before == kBlocksOfList - 1;
  }

  __device__ void sort_tiles() const {
    constexpr int kCount = power_of_two_from(C::kTiles);
    unsigned long long* keys = reinterpret_cast<unsigned long long*>(shared_memory());
    const Tile* all = lists.tiles + list * C::kTiles;
#pragma unroll 1
    for (int i = threadIdx.x; i < kCount; i += kListThreads) {
      keys[i] = i < C::kTiles ? (unsigned long long)all[i].blocks << 32 | (unsigned)~i : 0;
    }
    __syncthreads();
    sort_descending<kCount>(keys);
#pragma unroll 1
    for (int i = threadIdx.x; i < C::kTiles; i += kListThreads) {
      lists.sorted[list * C::kTiles + i] = all[~(int)keys[i]];
    }
  }

  static __device__ constexpr int power_of_two_from(int least) {
    int count = 2;
    while (count < least) count *= 2;
    return count;
  }
};

// The kernel, for kListThreads threads in blocks of each list.
template <class C, class E>
ATTN_INLINE void list_keys(const E& expressions, const KeyLists& lists) {
  using Maker = ListMaker<C, E>;
  __shared__ typename Maker::Rows rows[C::kTilesOfBlock];
  Maker{expressions, lists, rows}.run();
}

}  // namespace kernels
