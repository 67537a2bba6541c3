// Items of the forward: tiles of queries, and which blocks of keys each sees.
#pragma once

#include "attn/forward_copier.cuh"
#include "attn/sections.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

// Finds them in the lists.
template <class Base>
struct ForwardItems : Base {
  using C = typename Base::C;
  using Base::lists, Base::expressions, Base::kPastAllKeys;

  // A tile of queries of a unit of heads, and which part of its keys.
  struct Item {
    int b, unit, part;
    Tile tile;
  };

  // With kBatchesFirst, blocks of threads that run together share a table, which batches have in
  // common.
  __device__ Item item_of(int number) const {
    if (number >= C::kItems) return {};
    constexpr int kAllUnits = C::kUnits * C::kBatches;
    const auto [unit, place] =
        tile_in_sections<kAllUnits, C::kTiles, C::kSection, C::kFront>(number / C::kSplits);
    const int b = C::kBatchesFirst ? unit % C::kBatches : unit / C::kUnits;
    const int u = C::kBatchesFirst ? unit / C::kBatches : unit % C::kUnits;
    const int list = b * C::kListsOfBatch + u * C::kListsOfUnit;
    return {b, u, number % C::kSplits, lists.tile(list * C::kTiles + place)};
  }

  // What is left of an item's blocks, of which there is at least one: the epilogue needs it.
  struct Blocks {
    int left, keys;
    int used;    // keys whose values count: fewer, if masks are padding
    int run;     // in the lists
    int of_run;  // blocks of it that are left
    int key;     // of the next block
    unsigned flags;
  };

  __device__ Blocks blocks_of(const Item& item) const {
    const int keys = expressions.keys(item.b);
    const bool rows = item.tile.tile * C::kRowsOfTile < expressions.queries(item.b);
    const int count = !rows ? 0 : C::kLengths ? blocks_below(keys, item.tile) : item.tile.blocks;
    Blocks blocks{count, keys, expressions.used_keys(item.b), item.tile.first, 0, 0, kFirstOfTile};
    if (C::kSplits > 1) return part_of(blocks, item.part);
    if (count > 0)
      begin_run(blocks);
    else
      blocks = nothing_of(blocks);
    return blocks;
  }

  // A block past all keys, of which nothing is read.
  static __device__ Blocks nothing_of(Blocks blocks) {
    blocks.left = 1, blocks.of_run = 2, blocks.key = C::kPatches ? 0 : kPastAllKeys;
    blocks.flags |= C::kPatches ? kMasked : kPastKeys;
    return blocks;
  }

  // The blocks of a part.
  __device__ Blocks part_of(Blocks blocks, int part) const {
    const int first = blocks.left * part / C::kSplits;
    blocks.left = blocks.left * (part + 1) / C::kSplits - first;
    if (blocks.left == 0) return nothing_of(blocks);
    int skipped = first;
    for (begin_run(blocks); skipped >= blocks.of_run; begin_run(blocks)) skipped -= blocks.of_run;
    blocks.of_run -= skipped, blocks.key += skipped * C::kKeys;
    return blocks;
  }

  __device__ void begin_run(Blocks& blocks) const {
    const Run run = lists.run(blocks.run++);
    blocks.key = run.key & (int)kKeyBits;
    blocks.of_run = run.blocks;
    blocks.flags = (blocks.flags & kFirstOfTile) | (run.key & (kMasked | kByIndices));
  }

  __device__ int blocks_below(int keys, const Tile& tile) const {
    int blocks = 0;
    for (int i = 0; i < tile.runs; ++i) {
      const Run run = lists.run(tile.first + i);
      const int left = keys - (run.key & (int)kKeyBits);
      if (left <= 0) break;
      const int most = (left + C::kKeys - 1) / C::kKeys;
      blocks += most < run.blocks ? most : run.blocks;
    }
    return blocks;
  }
};

}  // namespace kernels
