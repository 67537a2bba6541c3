// The rows that see a block of keys, block after block: in lists of the backward, or computed.
#pragma once

#include "attn/backward_copier.cuh"
#include "attn/bands.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

// Walks the lists. Remembers in shared memory where it is.
template <class Base>
struct RowLists : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using ListWord = typename Base::ListWord;
  using Base::stages, Base::lists, Base::expressions, Base::set, Base::get, Base::kBlock,
      Base::kFirstRun, Base::kBlocks, Base::kRun, Base::kLeftOfRun, Base::kBlocksLeft, Base::kTurn;

  // Blocks of the tile within the lengths of the unit's batch.
  __device__ int blocks_of(const Tile& tile, int unit) const {
    if (!C::kLengths) return tile.blocks;
    const int b = unit / C::kKeyHeads;
    if (tile.tile * S::kKeys >= expressions.keys(b)) return 0;
    int blocks = 0;
    for (int i = 0; i < tile.runs; ++i) blocks += blocks_of(lists.run(tile.first + i), b);
    return blocks;
  }
  __device__ int blocks_of(const Run& run, int b) const {
    if (!C::kLengths) return run.blocks;
    const int left = expressions.queries(b) - (run.key & (int)kKeyBits);
    const int most = left <= 0 ? 0 : (left + C::kBlockRows - 1) / C::kBlockRows;
    return most < run.blocks ? most : run.blocks;
  }

  __device__ void begin_list() const {
    set(kRun, get(kFirstRun)), set(kLeftOfRun, 0), set(kBlocksLeft, get(kBlocks));
  }

  // Passes over blocks of a list that has begun.
  __device__ unsigned pass_over(int head, int blocks) const {
    set(kBlocksLeft, get(kBlocksLeft) - blocks);
    unsigned rows = 0;
    while (blocks > 0) {
      rows = next_run(head);
      const int left = get(kLeftOfRun), some = left < blocks ? left : blocks;
      set(kLeftOfRun, left - some);
      blocks -= some;
      rows += C::kOrdered ? -some * C::kBlockRows : some * C::kBlockRows;
    }
    return rows;
  }

  // The next block, or, if none is left, one that no row is in.
  __device__ unsigned next_rows(int head, unsigned rows) const {
    const int blocks = get(kBlocksLeft) - 1;
    if (blocks < 0) return C::kPaddedRows - C::kBlockRows;
    set(kBlocksLeft, blocks);
    while (get(kLeftOfRun) == 0) rows = next_run(head);
    set(kLeftOfRun, get(kLeftOfRun) - 1);
    return C::kOrdered ? rows - C::kBlockRows : rows + C::kBlockRows;
  }
  // Begins with it, and returns the rows before its first block.
  __device__ unsigned next_run(int head) const {
    const int run = get(kRun) - (C::kOrdered ? 1 : 0);
    set(kRun, C::kOrdered ? run : run + 1);
    const Run next = lists.run(run);
    const int left = blocks_of(next, head / C::kHeads);
    set(kLeftOfRun, left);
    if constexpr (C::kOrdered) set(kTurn, turn_of(lists.before(run)));
    return next.key + (C::kOrdered ? left * C::kBlockRows : -C::kBlockRows);
  }
  // What the block of keys waits for.
  __device__ int turn_of(int before) const { return before == 0 ? 0 : get(kBlock) - before + 1; }
};

// Computes them: masks are a band (kBand).
template <class Base>
struct RowsOfBand : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using ListWord = typename Base::ListWord;
  using Base::expressions, Base::set, Base::get, Base::kBlocks, Base::kBlocksLeft;

  // Words of the item: the first row, and where the full blocks begin and end.
  static constexpr ListWord kFirstRow = Base::kRun, kFull = Base::kLeftOfRun,
                            kFullEnd = Base::kTurn;
  static constexpr int kStart = 16;  // blocks begin at multiples of it

  __device__ int blocks_of(const Tile& tile, int unit) const {
    const int b = unit / C::kKeyHeads, first = tile.tile * S::kKeys;
    const int end = ::min(first + S::kKeys, expressions.keys(b));
    if (first >= end) return 0;
    const int head = unit % C::kKeyHeads * C::kHeadsOfKey;
    const BandBlocks blocks = blocks_of_band<C::kBlockRows, kStart>(
        expressions.rows(b, head, {first, end - 1}), expressions.queries(b));
    set(kFirstRow, blocks.first), set(kFull, blocks.before);
    set(kFullEnd, blocks.before + blocks.full);
    return blocks.all;
  }

  __device__ void begin_list() const { set(kBlocksLeft, get(kBlocks)); }

  __device__ unsigned pass_over(int, int blocks) const {
    set(kBlocksLeft, get(kBlocksLeft) - blocks);
    return 0;
  }

  // The next block, or, if none is left, one that no row is in.
  __device__ unsigned next_rows(int, unsigned) const {
    const int left = get(kBlocksLeft), n = get(kBlocks) - left;
    if (left <= 0) return C::kPaddedRows - C::kBlockRows;
    set(kBlocksLeft, left - 1);
    const bool full = n >= get(kFull) && n < get(kFullEnd);
    return get(kFirstRow) + n * C::kBlockRows + (full ? 0 : kMasked);
  }
};

}  // namespace kernels
