// Items of the forward: tiles of queries, and which blocks of keys each sees.
#pragma once

#include "attn/bands.cuh"
#include "attn/forward_copier.cuh"
#include "attn/schedule.cuh"
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

  // Whether it is of the keys that sequences share. These are read as those of the first one.
  static __device__ bool is_of_prefix(const Item& item) {
    return C::kPrefix && item.b == C::kBatches;
  }
  static __device__ int batch_of_keys(const Item& item) { return is_of_prefix(item) ? 0 : item.b; }

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
  using Base::expressions, Base::has_rows, Base::nothing_of, Base::is_of_prefix;

  __device__ Tile tile_at(int b, int, int place) const {
    constexpr bool kLast = C::kLastTilesFirst;
    return {tile_of_band<kLast, C::kTiles, C::kRowsOfTile>(place, expressions.queries(b))};
  }

  // Those of a part: its share of all blocks, or what the schedule says.
  __device__ Blocks blocks_of(const Item& item) const {
    if (is_of_prefix(item)) return blocks_of_prefix(item);
    const int keys = expressions.keys(item.b);
    Blocks blocks{0, keys, expressions.used_keys(item.b), 0, 0, 0, kFirstOfTile};
    if (!has_rows(item)) return nothing_of(blocks);
    if (Base::kSparesGroups && has_few_rows(item)) blocks.flags |= kFewRows;
    const BandBlocks of_tile = of_band(item, keys);
    int first = of_tile.all * item.part / C::kSplits;
    blocks.left = of_tile.all * (item.part + 1) / C::kSplits - first;
    if constexpr (C::kScheduled) {
      first = item.tile.first;
      blocks.left = ::min(item.tile.blocks, of_tile.all - first);
    }
    if (blocks.left <= 0) return nothing_of(blocks);
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
    blocks.flags = (blocks.flags & (kFirstOfTile | kFewRows)) | (full ? 0 : kMasked);
  }

 private:
  // All rows see all of their keys.
  static __device__ Blocks blocks_of_prefix(const Item& item) {
    const Tile& tile = item.tile;
    return {tile.blocks, C::kColumns,           C::kColumns, 0,
            tile.blocks, tile.first * C::kKeys, kFirstOfTile};
  }
  __device__ bool has_few_rows(const Item& item) const {
    const int rows = expressions.queries(item.b) - item.tile.tile * C::kRowsOfTile;
    return rows * C::kPack <= 64;
  }
  __device__ BandBlocks of_band(const Item& item, int keys) const {
    const int first = item.tile.tile * C::kRowsOfTile;
    const int end = ::min(first + C::kRowsOfTile, expressions.queries(item.b));
    const Band band = expressions.columns(item.b, item.unit * C::kPack, {first, end - 1});
    return blocks_of_band<C::kKeys, C::kBandStart>(band, keys);
  }
};

// Blocks of an item, one after another.
template <class Base>
struct FollowingBlocks : Base {
  using C = typename Base::C;
  using Blocks = typename Base::Blocks;

  // The flags of the next block, of which one less is to come then.
  static __device__ unsigned begin_block(Blocks& blocks) {
    const bool past = !C::kPatches && blocks.key + C::kKeys > blocks.keys;
    unsigned flags = blocks.flags | (past ? kPastKeys : 0);
    if (--blocks.left == 0) flags |= kLastOfTile;
    return flags;
  }
  // Goes on to the one behind it.
  __device__ void end_block(Blocks& blocks) const {
    blocks.flags &= ~kFirstOfTile, blocks.key += C::kKeys;
    if (--blocks.of_run == 0 && blocks.left > 0) Base::begin_run(blocks);
  }
};

// Items in the order of their numbers: each block of threads has one, then takes others in turns.
template <class Base>
struct NumberedItems : Base {
  using C = typename Base::C;
  using Item = typename Base::Item;
  using Base::tensors, Base::tile_at;

  __device__ int first_item() const { return blockIdx.x; }
  __device__ bool is_item(int number) const { return number < C::kItems; }
  // What is to be known for the number of the next item.
  __device__ int take(int) const { return C::kOneTurn ? C::kItems : atomicAdd(tensors.counter, 1); }
  __device__ int next_item(int, int taken) const { return gridDim.x + taken; }

  // With kBatchesFirst, blocks of threads that run together share a table, which batches have in
  // common.
  __device__ Item read_item(int number) const {
    if (number >= C::kItems) return {};
    constexpr int kAllUnits = C::kUnits * C::kBatches;
    const auto [unit, place] =
        tile_in_sections<kAllUnits, C::kTiles, C::kSection, C::kFront>(number / C::kSplits);
    const int b = C::kBatchesFirst ? unit % C::kBatches : unit / C::kUnits;
    const int u = C::kBatchesFirst ? unit / C::kBatches : unit % C::kUnits;
    return {b, u, number % C::kSplits, tile_at(b, u, place)};
  }
  static __device__ Item item_of(const Item& read) { return read; }
};

// Items of a schedule: those that a block of threads has alone, then others in turns.
template <class Base>
struct ScheduledItems : Base {
  using C = typename Base::C;
  using Item = typename Base::Item;
  using Base::stages, Base::tensors, Base::is_first, Base::known_to_all;

  // Numbers are read again rather than kept: threads that copy have few registers.
  __device__ Schedule<C> schedule() const { return {tensors.schedule}; }

  __device__ int first_item() {
    if constexpr (C::kPrefix) tell_prefix();
    if (blockIdx.x >= schedule().header().workers) return schedule().header().end;
    const Span alone = schedule().span(blockIdx.x);
    if (alone.begin < alone.end) return alone.begin;
    return next_item(alone.end, known_to_all(is_first() ? take(alone.end) : 0));
  }
  __device__ bool is_item(int number) const { return number < schedule().header().end; }
  __device__ bool is_next_alone(int number) const {
    return number + 1 < schedule().span(blockIdx.x).end;
  }
  __device__ int take(int number) const {
    if (is_next_alone(number)) return 0;
    ScheduleHeader& header = schedule().header();
    const int taken = atomicAdd(&header.taken, 1);
    if (taken == header.last) {
      header.taken = 0;
      if (C::kPrefix && header.prefix > 1) header.prefix ^= 1;
    }
    return taken;
  }
  __device__ int next_item(int number, int taken) const {
    return is_next_alone(number) ? number + 1 : schedule().header().first + taken;
  }

  // Tells those that compute what there is of a prefix: they see it with the first block of keys.
  // It is read before any item is taken, since it changes when the last one is: in order, which
  // only a schedule with a prefix waits for.
  __device__ void tell_prefix() const {
    if (!is_first()) return;
    int word = schedule().header().prefix;
    if (word > 0) word = read_in_order(&schedule().header().prefix);
    store_shared(stages.item_word(0), word);
  }

  __device__ ScheduledItem read_item(int number) const {
    return is_item(number) ? schedule().item(number) : ScheduledItem{};
  }
  // `part` is its slot, or 0. Made late of what was read: that takes fewer registers.
  static __device__ Item item_of(const ScheduledItem& read) {
    constexpr unsigned kTileMask = (1u << kTileBits) - 1;
    return {read.unit / C::kUnits,
            read.unit % C::kUnits,
            (int)(read.tile >> kTileBits),
            {(int)(read.tile & kTileMask), read.first, 0, read.blocks}};
  }
};

}  // namespace kernels
