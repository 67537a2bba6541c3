// Lists of key blocks (forward.cuh) for masks that read tensors, made by the GPU before the kernel
// that walks them. A block of threads lists what kTilesOfBlock tiles see:
//
//   rows    the least and the largest values that rows have: all rows of a tile, and each strip of
//           it
//   cells   those of the columns of 32 cells, a lane each, and with both what masks show of the
//           cells; where intervals do not tell, the warp looks at scores
//   runs    of adjacent blocks of keys, a warp for each tile, while others go on with further cells
//   order   the last block of threads that is done with a list sorts its tiles, the longest first
//
// Constants are those of forward.cuh, and kLists, kCellKeys, kCells, kMostRuns, kTilesOfBlock,
// kListsDone. Most loops are not unrolled: a kernel that runs once waits for its instructions. But
// reads of the columns of several cells are on their way together.
#pragma once

#include "attn/forward.cuh"
#include "attn/intervals.cuh"

namespace kernels {

constexpr int kListThreads = 512;  // of a block
constexpr int kLengths = 128;      // of tiles that are told apart when they are sorted

// What masks show of 32 cells, a bit each: any score, not all scores, and not all if those that
// read no tensors are left out.
struct CellBits {
  unsigned seen, masked, masked_by_tensors;
};

// What is made. `done`: blocks of threads that are done with each list, 0 at first.
struct KeyLists {
  Tile *tiles, *sorted;
  Run* runs;
  int* done;
};

// Adjacent blocks of keys, appended to those of a tile, from the words of its cells. All lanes of a
// warp have the same.
template <class C>
struct RunWriter {
  static constexpr int kPerBlock = C::kKeys / C::kCellKeys;
  using Bits = unsigned long long;
  static constexpr Bits kBlock = ((Bits)1 << kPerBlock) - 1;

  Tile tile;
  Run* runs;
  Run run{0, 0};
  CellBits before{0, 0, 0};  // the word before
  int at = 0;                // the first cell of it that no block has

  // Word `i`, with which the blocks are complete that begin in the word before.
  __device__ void add_word(int i, CellBits word) {
    const Bits seen = two(before.seen, word.seen), masked = two(before.masked, word.masked);
    const Bits by_tensors = two(before.masked_by_tensors, word.masked_by_tensors);
    while (at < 32) {
      const Bits ahead = seen >> at;
      at = ahead == 0 ? 32 : at + __ffsll((long long)ahead) - 1;
      if (at >= 32) break;
      const bool hides = (masked >> at & kBlock) != 0, reads = (by_tensors >> at & kBlock) != 0;
      add_block(((i - 1) * 32 + at) * C::kCellKeys, !hides  ? 0
                                                    : reads ? kMasked
                                                            : kMasked | kByIndices);
      at += kPerBlock;
    }
    at -= 32, before = word;
  }
  __device__ void finish() {
    if (run.blocks == 0) return;
    if (threadIdx.x % 32 == 0) runs[tile.first + tile.runs] = run;
    ++tile.runs;
  }

 private:
  static __device__ Bits two(unsigned low, unsigned high) { return low | (Bits)high << 32; }

  __device__ void add_block(int key, unsigned flags) {
    if (run.blocks == 0 || run.key + run.blocks * C::kKeys != (int)(key | flags)) {
      finish();
      run = {(int)(key | flags), 0};
    }
    ++run.blocks, ++tile.blocks;
  }
};

// The least and the largest value.
struct Bounds {
  int low, high;
};

template <class C, class E>
struct ListMaker {
  static constexpr int kWarps = kListThreads / 32;
  static_assert(C::kTilesOfBlock <= kWarps, "a warp lists the blocks of a tile");
  static constexpr int kBlocksOfList = (C::kTiles + C::kTilesOfBlock - 1) / C::kTilesOfBlock;
  static constexpr int kWords = (C::kCells + 31) / 32;  // of a tile
  static constexpr int kTurnWords = 4 * kWarps;         // that all warps look at, then list
  static constexpr int kStripRows = 16, kStrips = (C::kRowsOfTile + kStripRows - 1) / kStripRows;
  static constexpr int kHeads = C::kListsOfUnit ? C::kUnits : 1;
  static constexpr int kRowValues = E::kRowValues, kColumnValues = E::kColumnValues;
  struct Rows {
    Bounds of[kStrips + 1][kRowValues + 1];  // of strips, then of all; an array has an element
  };
  struct Shared {
    Rows rows[C::kTilesOfBlock];
    CellBits cells[2][kTurnWords][C::kTilesOfBlock];
    int firsts[kLengths];  // the place of the first tile of each length
    int before;
  };

  const E& expressions;
  const KeyLists lists;
  Shared& shared;
  int list = blockIdx.x / kBlocksOfList, first = blockIdx.x % kBlocksOfList * C::kTilesOfBlock;
  int tiles = ::min(C::kTilesOfBlock, C::kTiles - first);
  int b = list / kHeads, h = list % kHeads;  // for which masks differ
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  // Whether this block of threads was the last of its list, and has sorted it.
  __device__ bool run() const {
    begin_next_launch();
    if constexpr (E::kIntervals) find_strips();
    RunWriter<C> writer{{first + warp, index(warp) * C::kMostRuns, 0, 0}, lists.runs};
    // Words of cells are in turns, two of which share the memory.
#pragma unroll 1
    for (int from = 0; from < kWords; from += kTurnWords) {
      CellBits(&cells)[kTurnWords][C::kTilesOfBlock] = shared.cells[from / kTurnWords % 2];
#pragma unroll 1
      for (int i = warp; i < kTurnWords; i += kWarps) {
        look_at_cells(from + i, from == 0 && i == warp, cells[i]);
      }
      __syncthreads();
      if (warp >= tiles) continue;
      const int count = ::min(kTurnWords, kWords - from);
#pragma unroll 1
      for (int i = 0; i < count; ++i) writer.add_word(from + i, cells[i][warp]);
    }
    if (warp < tiles) store(writer);
    const bool last = is_last();
    if (last) sort_tiles();
    return last;
  }

  // The longest of the lengths that count as the same when tiles are sorted.
  static __device__ int longest_like(int blocks) {
    return (blocks / kOfLength + 1) * kOfLength - 1;
  }

 private:
  __device__ int first_row(int t) const { return (first + t) * C::kRowsOfTile; }
  __device__ int end_of_rows(int t) const { return ::min(first_row(t) + C::kRowsOfTile, C::kRows); }
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

  // Half a warp for each strip, the last warps first: the first ones have columns to read
  // meanwhile. Rows past the end are the last one.
  __device__ void find_strips() const {
    int values[kRowValues + 1];
#pragma unroll 1
    for (int two = 2 * (kWarps - 1 - warp); two < tiles * kStrips; two += 2 * kWarps) {
      const int strip = ::min(two + lane / kStripRows, tiles * kStrips - 1);
      const int t = strip / kStrips, of_tile = strip % kStrips * kStripRows + lane % kStripRows;
      expressions.row_values(b, h, ::min(first_row(t) + of_tile, end_of_rows(t) - 1), values);
      for (int i = 0; i < kRowValues; ++i) {
        shared.rows[t].of[strip % kStrips][i] = of_lanes<kStripRows>({values[i], values[i]});
      }
    }
  }

  __device__ void find_rows() const {
#pragma unroll 1
    for (int n = threadIdx.x; n < tiles * kRowValues; n += kListThreads) {
      Rows& all = shared.rows[n / kRowValues];
      const int i = n % kRowValues;
      Bounds bounds = all.of[0][i];
      for (int strip = 1; strip < kStrips; ++strip) {
        bounds.low = ::min(bounds.low, all.of[strip][i].low);
        bounds.high = ::max(bounds.high, all.of[strip][i].high);
      }
      all.of[kStrips][i] = bounds;
    }
  }

  // Finds the columns of this lane's cell of the 32 from `cell` on. Four lanes read the columns of
  // a cell, so that a warp reads adjacent ones, and hand what they found to the cell's lane.
  __device__ void find_columns(int cell, Interval* columns) const {
    constexpr int kOfCell = 4, kAtOnce = 32 / kOfCell, kTimes = 32 / kAtOnce;
    Bounds some[kTimes][kColumnValues + 1];
#pragma unroll
    for (int n = 0; n < kTimes; ++n) {
      const int of_warp = cell + n * kAtOnce + lane / kOfCell;
      some_columns<kOfCell>(of_warp * C::kCellKeys + lane % kOfCell, some[n]);
    }
#pragma unroll
    for (int n = 0; n < kTimes; ++n) {
      for (int j = 0; j < kColumnValues; ++j) {
        const Bounds found = of_lanes<kOfCell>(some[n][j]);
        const int low = __shfl_sync(~0u, found.low, lane % kAtOnce * kOfCell);
        const int high = __shfl_sync(~0u, found.high, lane % kAtOnce * kOfCell);
        if (lane / kAtOnce == n) columns[j] = {low, high};
      }
    }
  }

  // Bounds of every kApart-th column of a cell, from this one on.
  template <int kApart>
  __device__ void some_columns(int column, Bounds* some) const {
    int values[kColumnValues + 1];
#pragma unroll
    for (int i = 0; i < C::kCellKeys; i += kApart) {
      expressions.column_values(b, h, ::min(column + i, C::kColumns - 1), values);
      for (int j = 0; j < kColumnValues; ++j) {
        some[j] = i == 0 ? Bounds{values[j], values[j]}
                         : Bounds{::min(some[j].low, values[j]), ::max(some[j].high, values[j])};
      }
    }
  }

  // What is known of the scores of a cell.
  struct Shown {
    bool any = true, all = false;  // any may be shown; all are
    bool all_by_tensors = false;   // all are, by masks that read tensors
    bool open = true;              // it is not known whether any is
  };

  // What masks show of a word of cells and the rows of each tile. `first`: strips are to be waited
  // for.
  __device__ void look_at_cells(int word, bool first, CellBits* cells) const {
    Interval columns[kColumnValues + 1] = {};
    if constexpr (E::kIntervals) {
      if (word < kWords) find_columns(word * 32, columns);
      if (first) {
        __syncthreads();
        if constexpr (kRowValues > 0) find_rows();
        __syncthreads();
      }
    }
    if (word >= kWords) return;
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
      Shown shown;
      if constexpr (E::kIntervals) shown = shown_by_intervals(t, columns);
      if (word * 32 + lane >= C::kCells) shown = {false, true, true, false};
#pragma unroll 1
      for (unsigned open = __ballot_sync(~0u, shown.open); open != 0; open &= open - 1) {
        const int at = __ffs(open) - 1;
        const Shown found = look(t, word * 32 + at);
        if (lane == at) shown = found;
      }
      const unsigned seen = __ballot_sync(~0u, shown.any), masked = __ballot_sync(~0u, !shown.all);
      const unsigned by_tensors =
          E::kMasksByIndices ? __ballot_sync(~0u, !shown.all_by_tensors) : masked;
      if (lane == 0) cells[t] = {seen, masked, by_tensors};
    }
  }

  __device__ void rows_of(int t, int strip, Interval* own) const {
    for (int i = 0; i < kRowValues; ++i) {
      const Bounds& bounds = shared.rows[t].of[strip][i];
      own[i] = {bounds.low, bounds.high};
    }
  }

  // Decides by the intervals of all rows; if they do not tell, by those of each strip. A cell of
  // which one strip is shown, and others may not be, counts as partial.
  __device__ Shown shown_by_intervals(int t, const Interval* columns) const {
    Interval own[kRowValues + 1];
    rows_of(t, kStrips, own);
    const Interval whole = expressions.visible(b, h, own, columns);
    Shown shown{whole.high != 0, whole.low != 0, whole.low != 0, !is_point(whole)};
    if constexpr (E::kMasksByIndices) {
      shown.all_by_tensors = expressions.visible_by_tensors(b, h, own, columns).low != 0;
    }
    if (kStrips == 1 || !__any_sync(~0u, shown.open)) return shown;
    bool some = false, any = false, all = true, by_tensors = true;
#pragma unroll 1
    for (int strip = 0; strip < kStrips; ++strip) {
      rows_of(t, strip, own);
      const Interval of_strip = expressions.visible(b, h, own, columns);
      some |= of_strip.low != 0, any |= of_strip.high != 0, all &= of_strip.low != 0;
      if constexpr (E::kMasksByIndices) {
        by_tensors &= expressions.visible_by_tensors(b, h, own, columns).low != 0;
      }
    }
    return {any, all, by_tensors, any && !some};
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
    const bool all_shown = __all_sync(~0u, all);
    return {__any_sync(~0u, any), all_shown, all_shown, false};
  }

  // What a warp has listed, of at most kMostRuns runs.
  __device__ void store(RunWriter<C>& writer) const {
    writer.add_word(kWords, {0, 0, 0});
    writer.finish();
    if (lane == 0) lists.tiles[index(warp)] = writer.tile;
  }

  __device__ bool is_last() const {
    __syncthreads();
    if (threadIdx.x == 0) shared.before = add_in_order(lists.done + list, 1);
    __syncthreads();
    return shared.before == kBlocksOfList - 1;
  }

  // The longest first; those of a length in their order.
  __device__ void sort_tiles() const {
    int* places = reinterpret_cast<int*>(shared_memory());  // of each tile; at first its length
    const Tile* all = lists.tiles + list * C::kTiles;
    if (threadIdx.x < kLengths) shared.firsts[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < C::kTiles; i += kListThreads) {
      places[i] = length_of(all[i].blocks);
      atomicAdd(&shared.firsts[places[i]], 1);
    }
    __syncthreads();
    if (warp == 0) {
      find_firsts();
      find_places(places);
    }
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < C::kTiles; i += kListThreads) {
      lists.sorted[list * C::kTiles + places[i]] = all[i];
    }
  }

  // 0 is the longest. Of long lists, similar lengths are one.
  static constexpr int kOfLength = C::kMostRuns / kLengths + 1;
  static __device__ int length_of(int blocks) { return kLengths - 1 - blocks / kOfLength; }

  // Finds the first place of each length from how many tiles have it. A lane has adjacent lengths.
  __device__ void find_firsts() const {
    constexpr int kOfLane = kLengths / 32;
    int* own = shared.firsts + lane * kOfLane;
    int before = 0;
    for (int i = 0; i < kOfLane; ++i) before += own[i];
    const int count = before;
    for (int away = 1; away < 32; away *= 2) {
      const int others = __shfl_up_sync(~0u, before, away);
      if (lane >= away) before += others;
    }
    before -= count;
    for (int i = 0; i < kOfLane; ++i) {
      const int of_length = own[i];
      own[i] = before, before += of_length;
    }
    __syncwarp();
  }

  __device__ void find_places(int* places) const {
#pragma unroll 1
    for (int from = 0; from < C::kTiles; from += 32) {
      const int i = from + lane, length = i < C::kTiles ? places[i] : -1;
      const unsigned alike = __match_any_sync(~0u, length);
      const int before = __popc(alike & ((1u << lane) - 1));
      if (length >= 0) places[i] = shared.firsts[length] + before;
      __syncwarp();
      if (length >= 0 && before == 0) shared.firsts[length] += __popc(alike);
      __syncwarp();
    }
  }
};

// The kernel, for kListThreads threads in blocks of each list.
template <class C, class E>
ATTN_INLINE void list_keys(const E& expressions, const KeyLists& lists) {
  using Maker = ListMaker<C, E>;
  __shared__ typename Maker::Shared shared;
  Maker{expressions, lists, shared}.run();
}

}  // namespace kernels
