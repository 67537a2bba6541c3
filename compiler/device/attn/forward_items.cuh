// Items of the forward: tiles of queries, and which blocks of keys each sees.
#pragma once

#include "attn/bands.cuh"
#include "attn/forward_copier.cuh"
#include "attn/sections.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

// What is known of an item, and of its blocks.
template <class Base>
struct ForwardTiles : Base {
  using C = typename Base::C;
  using Base::expressions, Base::kPastAllKeys;

  // A tile of queries of a unit of heads, and which part of its keys.
  struct Item {
    int b, unit, part;
    Tile tile;
  };

  // What is left of an item's blocks, of which there is at least one: the epilogue needs it.
  struct Blocks {
    int left, keys;
    int used;    // keys whose values count: fewer, if masks are padding
    int run;     // in the lists; of a band, its full blocks that are still to come
    int of_run;  // blocks of it that are left
    int key;     // of the next block
    unsigned flags;
  };

  __device__ bool has_rows(const Item& item) const {
    return item.tile.tile * C::kRowsOfTile < expressions.queries(item.b);
  }

  // A block past all keys, of which nothing is read.
  static __device__ Blocks nothing_of(Blocks blocks) {
    blocks.left = 1, blocks.of_run = 2, blocks.key = C::kPatches ? 0 : kPastAllKeys;
    blocks.flags |= C::kPatches ? kMasked : kPastKeys;
    return blocks;
  }
};

// Finds blocks in the lists.
template <class Base>
struct ListedBlocks : Base {
  using C = typename Base::C;
  using Item = typename Base::Item;
  using Blocks = typename Base::Blocks;
  using Base::lists, Base::expressions, Base::has_rows, Base::nothing_of;

  __device__ Tile tile_at(int b, int unit, int place) const {
    const int list = b * C::kListsOfBatch + unit * C::kListsOfUnit;
    return lists.tile(list * C::kTiles + place);
  }

  __device__ Blocks blocks_of(const Item& item) const {
    const int keys = expressions.keys(item.b);
    const bool rows = has_rows(item);
    const int count = !rows ? 0 : C::kLengths ? blocks_below(keys, item.tile) : item.tile.blocks;
    Blocks blocks{count, keys, expressions.used_keys(item.b), item.tile.first, 0, 0, kFirstOfTile};
    if (C::kSplits > 1) return part_of(blocks, item.part);
    if (count > 0)
      begin_run(blocks);
    else
      blocks = nothing_of(blocks);
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

// Computes blocks: masks are a band (kBand).
template <class Base>
struct BlocksOfBand : Base {
  using C = typename Base::C;
  using Item = typename Base::Item;
  using Blocks = typename Base::Blocks;
  using Base::expressions, Base::has_rows, Base::nothing_of;

  __device__ Tile tile_at(int b, int, int place) const {
    constexpr bool kLast = C::kLastTilesFirst;
    return {tile_of_band<kLast, C::kTiles, C::kRowsOfTile>(place, expressions.queries(b))};
  }

  // Those of a part: its share of all blocks.
  __device__ Blocks blocks_of(const Item& item) const {
    const int keys = expressions.keys(item.b);
    Blocks blocks{0, keys, expressions.used_keys(item.b), 0, 0, 0, kFirstOfTile};
    if (!has_rows(item)) return nothing_of(blocks);
    const BandBlocks of_tile = of_band(item, keys);
    const int first = of_tile.all * item.part / C::kSplits;
    blocks.left = of_tile.all * (item.part + 1) / C::kSplits - first;
    if (blocks.left == 0) return nothing_of(blocks);
    blocks.key = of_tile.first + first * C::kKeys;
    const int before = ::max(of_tile.before - first, 0);
    const int full_end = ::min(of_tile.before + of_tile.full - first, blocks.left);
    blocks.run = ::max(full_end - before, 0);
    blocks.of_run = ::min(before, blocks.left);
    if (blocks.of_run > 0)
      blocks.flags |= kMasked;
    else
      begin_run(blocks);
    return blocks;
  }

  // The full blocks are a run, if any are left; else the others.
  __device__ void begin_run(Blocks& blocks) const {
    const bool full = blocks.run > 0;
    blocks.of_run = full ? blocks.run : blocks.left;
    blocks.run = 0;
    blocks.flags = (blocks.flags & kFirstOfTile) | (full ? 0 : kMasked);
  }

 private:
  __device__ BandBlocks of_band(const Item& item, int keys) const {
    const int first = item.tile.tile * C::kRowsOfTile;
    const int end = ::min(first + C::kRowsOfTile, expressions.queries(item.b));
    const Band band = expressions.columns(item.b, item.unit * C::kPack, {first, end - 1});
    return blocks_of_band<C::kKeys, C::kBandStart>(band, keys);
  }
};

// Finds items.
template <class Base>
struct ForwardItems : Base {
  using C = typename Base::C;
  using Item = typename Base::Item;
  using Base::tile_at;

  // With kBatchesFirst, blocks of threads that run together share a table, which batches have in
  // common.
  __device__ Item item_of(int number) const {
    if (number >= C::kItems) return {};
    constexpr int kAllUnits = C::kUnits * C::kBatches;
    const auto [unit, place] =
        tile_in_sections<kAllUnits, C::kTiles, C::kSection, C::kFront>(number / C::kSplits);
    const int b = C::kBatchesFirst ? unit % C::kBatches : unit / C::kUnits;
    const int u = C::kBatchesFirst ? unit / C::kBatches : unit % C::kUnits;
    return {b, u, number % C::kSplits, tile_at(b, u, place)};
  }
};

}  // namespace kernels
