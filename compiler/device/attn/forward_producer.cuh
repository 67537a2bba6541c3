// Threads of the forward kernel that copy queries, keys, values and tables.
#pragma once

#include "attn/block_rows.cuh"
#include "attn/forward_stages.cuh"
#include "attn/forward_tensors.cuh"
#include "attn/gathered_rows.cuh"
#include "attn/patches.cuh"
#include "attn/sections.cuh"
#include "attn/tile_runs.cuh"
#include "attn/which.cuh"

namespace kernels {

// One thread, or a warp if keys or values are in pages, or a warp group if it copies rows. Then all
// threads know the same, and the first does what is done once. Warps but the first take part in
// what is copied by rows alone: a wait for another stage might miss a phase.
template <class C, class E, class L>
struct Producer {
  static constexpr int kLanes = C::kKeyPage > 0 || C::kValuePage > 0 ? 32 : 1;
  static constexpr bool kGathers = C::kGatherKeys || C::kGatherValues;
  static constexpr int kThreads = kGathers ? kGatherThreads : kLanes;
  static constexpr int kPastAllKeys = (C::kColumns + 15) / 16 * 16;
  using S = Stages<C>;
  // Whether another warp clears values past the length: if none is left, the one that copies does.
  static constexpr bool kClearsLater = S::kClears && !kGathers;
  using KeyRows =
      typename Which<C::kGatherKeys,
                     GatheredRows<C::kKeys, C::kKeyPage, C::kTaken, C::kDepth, C::kDepthPanel>,
                     BlockRows<C::kKeys, C::kKeyPage, C::kKeyPiece, kLanes>>::Type;
  using ValueRows =
      typename Which<C::kGatherValues,
                     GatheredRows<C::kKeys, C::kValuePage, C::kStored, C::kWidth, C::kWidthPanel>,
                     BlockRows<C::kKeys, C::kValuePage, C::kValuePiece, kLanes>>::Type;
  const S stages;
  const ForwardTensors& tensors;
  const E& expressions;
  const L& lists;
  Turn<C::kQueries> query{0, 1};
  Turn<C::kStages> key{0, 1}, value{0, 1};
  Turn<C::kTables> table{0, 1};
  Turn<2> item_word{};
  // Values that are still to come, of a batch with value_keys of them.
  int value_key = -1, value_head = 0, value_batch = 0, value_keys = 0;
  int tails = 0;    // of values, so far
  int mapped = -1;  // the batch whose maps were acquired

  // A tile of queries of a unit of heads, and which part of its keys.
  struct Item {
    int b, unit, part;
    Tile tile;
  };

  __device__ void run() {
    if constexpr (C::kOverlaps) wait_for_launch();
    int n = blockIdx.x;
    Item item = item_of(n);
    while (n < C::kItems) {
      const int taken = is_first() ? atomicAdd(tensors.counter, 1) : 0;
      copy_queries(item);
      Blocks blocks = blocks_of(item);
      copy_block(item, blocks);
      // The item is known by now, and so is the next one when it is needed.
      n = gridDim.x + known_to_all(taken);
      const Item next = item_of(n);
      while (blocks.left > 0) copy_block(item, blocks);
      item = next;
    }
    if (takes_part(C::kGatherKeys)) wait(empty_of(stages.key_full(key.stage)), key.parity);
    if (is_first()) {
      store_shared(stages.key_word(key.stage), kEndOfStream);
      arrive(stages.key_full(key.stage));
    }
    if (C::kGatherKeys) arrive_with_copies(stages.key_full(key.stage));
    copy_values();
    if constexpr (kClearsLater) {
      if (is_first()) stages.tails().end(tails);
    }
    if (kGathers) finish_copies();
  }

  static __device__ bool is_first() { return kThreads == 1 || threadIdx.x == 0; }
  static __device__ bool takes_part(bool gathers) {
    return !kGathers || gathers || threadIdx.x < 32;
  }

  // What the first thread knows.
  __device__ int known_to_all(int x) {
    if constexpr (!kGathers) {
      return kLanes == 1 ? x : __shfl_sync(~0u, x, 0);
    } else {
      const unsigned word = stages.item_word(item_word.stage);
      if (is_first()) store_shared(word, x);
      sync_named(15, kGatherThreads);
      item_word.next();
      return (int)load_shared(word);
    }
  }

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

  __device__ void acquire_maps(int b) {
    if (b == mapped) return;
    mapped = b;
    if constexpr (C::kThdQ) acquire_map(tensors.q + b);
    if constexpr (C::kThdK) acquire_map(tensors.k + b);
    if constexpr (C::kThdV) acquire_map(tensors.v + b);
  }

  __device__ void copy_queries(const Item& item) {
    acquire_maps(item.b);
    if (!takes_part(false)) return;
    const unsigned full = stages.query_full(query.stage);
    wait(empty_of(full), query.parity);
    if (is_first()) {
      store_shared(stages.query_word(query.stage), item.b * C::kUnits + item.unit);
      store_shared(stages.query_word(query.stage) + 4, item.tile.tile * C::kSplits + item.part);
      arrive_expecting(full, S::kQueryBytes);
      for (int panel = 0; panel < S::kDepthPanels; ++panel) {
        const unsigned to = stages.query(query.stage) + panel * S::kQueryPanel;
        const int column = panel * C::kDepthPanel;
        if constexpr (C::kPatches) {
          const Place first = patch_of_queries<C>(item.tile.tile);
          copy_box(to, *tensors.q, full, column, 0, first.x, first.y + item.b * C::kRowsOfBatch,
                   item.unit + item.b * C::kUnitsOfBatch);
        } else {
          // Reads nothing of a sequence without rows, whose map has one row.
          const bool none = C::kThdQ && expressions.queries(item.b) == 0;
          copy_box(to, tensors.q[C::kThdQ ? item.b : 0], full, column, 0,
                   none ? C::kRows : item.tile.tile * C::kRowsOfTile, item.unit,
                   C::kThdQ ? 0 : item.b);
        }
      }
    }
    query.next();
  }

  // A block of keys or values that is a patch.
  template <int kPanels, int kColumns>
  __device__ void copy_patch(unsigned to, const TensorMap& map, unsigned full, int at, int head,
                             int b) const {
    const Place first = patch_of_keys<C>(at);
    for (int panel = 0; panel < kPanels; ++panel) {
      copy_box(to + panel * C::kKeys * (2 * kColumns), map, full, panel * kColumns, first.x,
               first.y, head, b);
    }
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

  // The values of a block come after the keys of the next.
  __device__ void copy_block(const Item& item, Blocks& blocks) {
    const int at = blocks.key, head = item.unit * C::kPack / C::kHeadsOfKey;
    const bool past = !C::kPatches && at + C::kKeys > blocks.keys;
    unsigned flags = blocks.flags | (past ? kPastKeys : 0);
    if (--blocks.left == 0) flags |= kLastOfTile;
    if (takes_part(C::kGatherKeys)) copy_keys(item.b, at, head, at | flags, blocks.keys);
    key.next();
    if constexpr (C::kTables > 0) {
      if (takes_part(false)) copy_table(item, at);
    }
    copy_values();
    value_key = at, value_head = head, value_batch = item.b, value_keys = blocks.used;
    blocks.flags &= ~kFirstOfTile, blocks.key += C::kKeys;
    if (--blocks.of_run == 0 && blocks.left > 0) begin_run(blocks);
  }

  // The block from key `at` on, of which `word` tells the consumers.
  __device__ void copy_keys(int b, int at, int head, unsigned word, int keys) {
    const unsigned full = stages.key_full(key.stage);
    KeyRows rows;
    if constexpr (C::kGatherKeys)
      rows.find(tensors.key_table + b * C::kKeyPages, at, keys);
    else
      rows.find(tensors.key_table + b * C::kKeyPages, C::kThdK ? 0 : b, at, keys);
    wait(empty_of(full), key.parity);
    if (is_first()) {
      store_shared(stages.key_word(key.stage), word);
      if (C::kGatherKeys)
        arrive(full);
      else
        arrive_expecting(full, S::kKeyBytes);
    }
    if constexpr (C::kPatches) {
      copy_patch<S::kDepthPanels, C::kDepthPanel>(stages.key(key.stage), *tensors.k, full, at, head,
                                                  b);
    } else if constexpr (C::kGatherKeys) {
      rows.copy(stages.key(key.stage), tensors.key_rows + head * C::kKeyHeadStride, full, at,
                C::kKeyPageStride, C::kKeyRowStride);
    } else {
      rows.template copy<S::kDepthPanels, C::kDepthPanel, S::kKeyRow>(
          stages.key(key.stage), tensors.k[C::kThdK ? b : 0], full, at, head);
    }
  }

  __device__ void copy_table(const Item& item, int at) {
    const unsigned full = stages.table_full(table.stage);
    wait(empty_of(full), table.parity);
    constexpr int kCopied = S::kTablePanels * S::kTableRows * S::kTablePitch;
    if (is_first()) arrive_expecting(full, kCopied);
    for (int panel = 0; is_first() && panel < S::kTablePanels; ++panel) {
      copy_box(stages.table(table.stage) + panel * S::kTablePanel, *tensors.table, full,
               at + panel * 64, 0, item.tile.tile * C::kRowsOfTile, item.unit * C::kTableOfUnit,
               item.b * C::kTableOfBatch);
    }
    if (kLanes > 1) __syncwarp();  // as BlockRows::copy
    table.next();
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

  // The values of a block, of which panels have adjacent keys.
  __device__ void copy_transposed_values() {
    if (value_key < 0) return;
    const unsigned full = stages.value_full(value.stage);
    wait(empty_of(full), value.parity);
    if (is_first()) {
      arrive_expecting(full, S::kValueBytes);
      for (int panel = 0; panel < S::kWidthPanels; ++panel) {
        copy_box(stages.value(value.stage) + panel * S::kValuePanel, *tensors.v, full,
                 value_key + panel * C::kWidthPanel, 0, value_head, value_batch);
      }
    }
    if (kLanes > 1) __syncwarp();  // as BlockRows::copy
    value.next();
  }

  __device__ void copy_values() {
    if constexpr (S::kOf8Bits)
      copy_transposed_values();
    else
      copy_plain_values();
  }

  __device__ void copy_plain_values() {
    if (value_key < 0 || !takes_part(C::kGatherValues)) return;
    unsigned full = stages.value_full(value.stage);
    const int* pages = tensors.value_table + value_batch * C::kValuePages;
    ValueRows rows;
    if constexpr (C::kGatherValues)
      rows.find(pages, value_key, value_keys);
    else
      rows.find(pages, C::kThdV ? 0 : value_batch, value_key, value_keys);
    // Read before the wait: it would delay the copies.
    const bool tail = has_tail();
    wait(empty_of(full), value.parity);
    if (tail) {
      full = announce_tail();
    } else if (is_first()) {
      if (C::kGatherValues)
        arrive(full);
      else
        arrive_expecting(full, S::kValueBytes);
    }
    if constexpr (C::kPatches) {
      copy_patch<S::kWidthPanels, C::kWidthPanel>(stages.value(value.stage), *tensors.v, full,
                                                  value_key, value_head, value_batch);
    } else if constexpr (C::kGatherValues) {
      rows.copy(stages.value(value.stage), tensors.value_rows + value_head * C::kValueHeadStride,
                full, value_key, C::kValuePageStride, C::kValueRowStride);
    } else {
      rows.template copy<S::kWidthPanels, C::kWidthPanel, S::kValueRow>(
          stages.value(value.stage), tensors.v[C::kThdV ? value_batch : 0], full, value_key,
          value_head);
    }
    if (tail) end_tail();
    value.next();
  }

  // Whether rows of the values to come are past the length, but in the tensor, or in a page.
  __device__ bool has_tail() const {
    if constexpr (!S::kClears) return false;
    return value_keys - value_key < C::kKeys && value_key < C::kColumns &&
           (C::kValuePage > 0 || value_keys < C::kColumns);
  }
  // Returns the barrier for the copies.
  __device__ unsigned announce_tail() const {
    if constexpr (!S::kClears)
      return 0;
    else {
      const unsigned before = max(value_keys - value_key, 0) * S::kValueRow;
      const Tail tail{stages.value_full(value.stage), stages.value(value.stage) + before,
                      S::kValuePanel - before, S::kWidthPanels, S::kValuePanel};
      if (is_first()) stages.tails().announce(tails, tail, S::kValueBytes);
      return stages.tails().barrier(tails);
    }
  }
  __device__ void end_tail() {
    if constexpr (S::kClears && !kClearsLater) stages.tails().clear(tails);
    ++tails;
  }
};

}  // namespace kernels
