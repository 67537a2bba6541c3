// Walks lists of the backward: the rows that see a block of keys, block after block.
#pragma once

#include "attn/backward_copier.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

// Remembers in shared memory where it is.
template <class Base>
struct RowLists : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using ListWord = typename Base::ListWord;
  using Base::stages, Base::lists, Base::expressions, Base::set, Base::get, Base::kBlock,
      Base::kFirstRun, Base::kBlocks, Base::kRun, Base::kLeftOfRun, Base::kBlocksLeft, Base::kTurn;

  // Blocks of the tile within the lengths of the batch.
  __device__ int blocks_of(const Tile& tile, int b) const {
    if (!C::kLengths) return tile.blocks;
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

}  // namespace kernels
