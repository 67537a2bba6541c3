// The thread of the backward kernel that copies keys and the rows that see them.
#pragma once

#include "attn/backward_stages.cuh"
#include "attn/backward_tensors.cuh"
#include "attn/division.cuh"
#include "attn/places.cuh"
#include "attn/sections.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

// One thread. It has few registers, because the warp groups need them: what it has to remember is
// in shared memory.
template <class C, class E, class L>
struct RowProducer {
  using S = BackwardStages<C>;
  // Words of the item: its block of keys and the first one, its list, and where it is in that: the
  // next run or the one before it, blocks of that which are left, and of all; the turn of the run;
  // what item_words tell of the unit; and the first step. Words of all items: tails so far.
  enum ListWord {
    kBlock,
    kFirstKey,
    kFirstRun,
    kBlocks,
    kRun,
    kLeftOfRun,
    kBlocksLeft,
    kStepsLeft,
    kTurn,
    kUnit,
    kFirst,
    kTail
  };
  static constexpr int kLeastBlocks = C::kHeadsOfKey == 1 ? 2 : 1;  // two steps
  const S stages;
  const BackwardTensors& tensors;
  const E& expressions;
  const L& lists;
  // Steps so far: the next is in stage `steps` % 2. The highest bit changes with each item, and the
  // next tells that an item has begun.
  static constexpr unsigned kFirstStep = 1u << 30;
  unsigned steps = 0;

  __device__ void set(ListWord word, int value) const {
    store_shared(stages.list_word(word), value);
  }
  __device__ int get(ListWord word) const { return load_shared(stages.list_word(word)); }

  __device__ void run() {
    static_assert(S::kStages == 2, "steps % 2");
    acquire_maps();
    if constexpr (S::kClears) set(kTail, 0);
    int n = atomicAdd(tensors.counter, 1);
    while (n < C::kItems + parts()) {
      copy_item(n);
      n = atomicAdd(tensors.counter, 1);
    }
    wait(empty_of(stages.keys_full()), steps >> 31 ^ 1);
    store_shared(stages.item_words(), kEndOfStream);
    store_shared(stages.step_words(steps), kEndOfStream);
    arrive(stages.keys_full());
    if constexpr (C::kRandom)
      arrive(empty_of(stages.drawn_full(steps)));
    else if constexpr (S::kClears)
      stages.tails().end(get(kTail));
  }

  __device__ void acquire_maps() const {
#pragma unroll 1
    for (int b = 0; b < C::kBatches; ++b) {
      if constexpr (C::Queries::kPacked) acquire_map(tensors.q + b);
      if constexpr (C::Keys::kPacked) acquire_map(tensors.k + b);
      if constexpr (C::Values::kPacked) acquire_map(tensors.v + b);
      if constexpr (C::Outputs::kPacked) acquire_map(tensors.d_o + b);
    }
  }

  __device__ int parts() const {
    if constexpr (kDivides<C>) return lists.parts();
    return 0;
  }

  // The n-th item among those that are not parts. Units (heads of keys) of a batch follow each
  // other, or those of a head (kBatchesFirst).
  static __device__ Part whole(int n) {
    constexpr int kUnits = C::kKeyHeads * C::kBatches;
    const auto [number, place] = tile_in_sections<kUnits, C::kKeyBlocks, C::kSection, 0>(n);
    const int unit =
        C::kBatchesFirst ? number % C::kBatches * C::kKeyHeads + number / C::kBatches : number;
    const int list = unit / C::kKeyHeads * C::kListsOfBatch + unit % C::kKeyHeads * C::kListsOfHead;
    return {unit, list * C::kKeyBlocks + place, 0, 1};
  }

  // Number of divided blocks of keys that begin with item n or before.
  __device__ int divided_until(int n) const {
    int low = 0, high = lists.divided_blocks();
#pragma unroll 1
    while (low < high) {
      const int middle = (low + high) / 2;
      if (lists.divided_block(middle).item <= n)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  // The number of the part that item n is. If it is none: -1, and n becomes the number of its block
  // of keys among all.
  __device__ int part_in_order(int& n) const {
    const int blocks = divided_until(n);
    if (blocks == 0) return -1;
    const DividedBlock last = lists.divided_block(blocks - 1);
    const int parts = lists.part(last.part).parts;
    if (n < last.item + parts) return last.part + n - last.item;
    n -= last.part + parts - blocks;
    return -1;
  }

  __device__ void copy_item(int n) {
    if constexpr (kPartsInOrder<C>) {
      const int part = part_in_order(n);
      const Part of = part < 0 ? whole(n) : lists.part(part);
      set(kUnit, part < 0 ? of.unit : part | kOfPart);
      copy_item(of, lists.tile(of.tile));
    } else if constexpr (kDivides<C>) {
      const int parts = lists.parts();
      const Part of = n < parts ? lists.part(n) : whole(n - parts);
      const Tile tile = lists.tile(of.tile);
      if (n >= parts && tile.blocks > lists.most()) return;
      set(kUnit, of.parts > 1 ? n | kOfPart : of.unit);
      copy_item(of, tile);
    } else {
      const Part of = whole(n);
      copy_item(of, lists.tile(of.tile));
    }
  }

  __device__ __forceinline__ void copy_item(const Part& of, const Tile& tile) {
    const int b = of.unit / C::kKeyHeads;
    if (has_no_keys(tile, b)) return;
    const int blocks = blocks_of(tile, b);
    set(kBlock, tile.tile), set(kFirstKey, first_key(tile, b));
    set(kFirstRun, tile.first + (C::kOrdered ? tile.runs : 0));
    if (kDivides<C> && of.parts > 1)
      set_steps(of, blocks);
    else
      set_steps(blocks, 0, (blocks < kLeastBlocks ? kLeastBlocks : blocks) * C::kHeadsOfKey);
    int head = of.unit * C::kHeadsOfKey;
    begin_list();
    unsigned rows = kDivides<C> ? pass_to_first(head) : 0;
    rows = next_rows(head, rows);
    steps |= kFirstStep;
#pragma unroll 1
    for (;;) {
      copy_queries(head, rows);
      copy_gradients();
      // The stages of the first step are empty before those of the keys.
      if (steps & kFirstStep) copy_keys();
      const int left = get(kStepsLeft) - 1;
      if (left == 0) break;
      set(kStepsLeft, left);
      rows = load_shared(stages.step_words(steps)) & ~kTailBits, head = last_head();
      ++steps;
      if (C::kHeadsOutside && get(kBlocksLeft) > 0) {
        rows = next_rows(head, rows);
        continue;
      }
      if (++head % C::kHeadsOfKey == 0) head -= C::kHeadsOfKey;
      if (C::kHeadsOutside) begin_list();
      if (C::kHeadsOutside || head % C::kHeadsOfKey == 0) rows = next_rows(head, rows);
    }
    ++steps;
    steps ^= 1u << 31;
  }
  // Sets the steps of the item, from the first on.
  __device__ void set_steps(int blocks, int first, int steps) const {
    set(kBlocks, blocks), set(kStepsLeft, steps);
    if constexpr (kDivides<C>) set(kFirst, first);
  }
  // Sets the steps of a part. Where lengths leave few steps, the first part has all, and others
  // take rows past the last one.
  __device__ void set_steps(const Part& of, int blocks) const {
    const int all = blocks * C::kHeadsOfKey;
    if (all < 2 * of.parts) {
      if (of.part > 0)
        set_steps(0, 0, 2);
      else
        set_steps(blocks, 0, all < 2 ? 2 : all);
      return;
    }
    const int steps = all / of.parts, more = all % of.parts;  // parts that have a step more
    set_steps(blocks, steps * of.part + (of.part < more ? of.part : more),
              of.part < more ? steps + 1 : steps);
  }

  // The rows before those of the first step. `head` is the first one of the unit.
  __device__ unsigned pass_to_first(int& head) const {
    const int first = get(kFirst);
    if (first == 0) return 0;
    const int of = C::kHeadsOutside ? get(kBlocks) : C::kHeadsOfKey;
    head += C::kHeadsOutside ? first / of : first % of;
    return pass_over(head, C::kHeadsOutside ? first % of : first / of);
  }
  __device__ int last_head() const { return (int)load_shared(stages.step_words(steps) + 4); }

  // Whether keys are past the end of a packed sequence, where no gradient is stored.
  __device__ bool has_no_keys(const Tile& tile, int b) const {
    constexpr bool kPacked = C::Keys::kPacked && C::Values::kPacked;
    return kPacked && tile.tile * S::kKeys >= expressions.keys(b);
  }

  // Past the length nothing is read; a sequence without keys has a map of one.
  __device__ int first_key(const Tile& tile, int b) const {
    const int first = tile.tile * S::kKeys;
    return (C::kLengths || C::kPadded) && first >= expressions.used_keys(b) ? C::kColumns : first;
  }

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

  // Copies the queries of a head, which is counted over all batches.
  __device__ void copy_queries(int head, unsigned rows) const {
    const unsigned n = steps & 1;
    unsigned full = stages.query_full(n);
    const int length = queries_of(head);  // read before the wait: it would delay the copies
    store_shared(stages.step_words(steps), rows | tails_of_step(head, rows));
    store_shared(stages.step_words(steps) + 4, head);
    if constexpr (C::kOrdered) store_shared(stages.step_words(steps) + 8, get(kTurn));
    if constexpr (C::kOrdered || C::kRandom) {
      store_shared(stages.step_words(steps) + 12, get(kBlock) + 1);
    }
    if constexpr (C::kRandom) arrive(empty_of(stages.drawn_full(steps)));
    wait(empty_of(full), (steps >> 1 & 1) ^ 1);
    full = copy_panels<typename C::Queries, C::kDepth, C::kBlockRows, C::kHeads, C::kRows>(
        stages.query(n), tensors.q, full, head, rows & kKeyBits, S::kRowBytes + S::kTableBytes,
        length);
    copy_row_values(stages.exponents(n), tensors.exponents, full, head, rows);
    if constexpr (C::kTable) copy_table(stages.table(n), full, head, rows);
  }
  // Copies the gradients of the same rows and head.
  __device__ void copy_gradients() const {
    const int head = last_head();
    const unsigned rows = load_shared(stages.step_words(steps)), n = steps & 1;
    unsigned full = stages.gradient_full(n);
    const int length = queries_of(head);
    wait(empty_of(full), (steps >> 1 & 1) ^ 1);
    full = copy_panels<typename C::Outputs, C::kWidth, C::kBlockRows, C::kHeads, C::kRows>(
        stages.gradient(n), tensors.d_o, full, head, rows & kKeyBits, S::kRowBytes, length);
    copy_row_values(stages.deltas(n), tensors.deltas, full, head, rows);
  }

  static __device__ void copy_row_values(unsigned to, const float* values, unsigned full, int unit,
                                         unsigned rows) {
    copy_bytes(to, values + (unsigned)(unit * C::kPaddedRows + (rows & kKeyBits)), S::kRowBytes,
               full);
  }

  __device__ void copy_table(unsigned to, unsigned full, int head, unsigned rows) const {
    const int column = get(kBlock) * S::kKeys;
    for (int panel = 0; panel < S::kKeys / 64; ++panel) {
      copy_box(to + panel * C::kBlockRows * 128, *tensors.table, full, column + panel * 64,
               rows & kKeyBits, C::kTableOfHead ? head % C::kHeads : 0,
               C::kTableOfBatch ? head / C::kHeads : 0);
    }
  }

  __device__ void copy_keys() {
    const int key_head = last_head() / C::kHeadsOfKey;  // of all batches
    steps &= ~kFirstStep;
    const int at = get(kFirstKey), length = keys_of(last_head());
    wait(empty_of(stages.keys_full()), steps >> 31 ^ 1);
    store_shared(stages.item_words(), kDivides<C> ? get(kUnit) : key_head);
    store_shared(stages.item_words() + 4, get(kBlock));
    store_shared(stages.item_words() + 8, get(kStepsLeft));
    copy_panels<typename C::Keys, C::kDepth, S::kKeys, C::kKeyHeads, C::kColumns>(
        stages.keys(), tensors.k, stages.keys_full(), key_head, at, 0, length);
    copy_panels<typename C::Values, C::kWidth, S::kKeys, C::kKeyHeads, C::kColumns>(
        stages.values(), tensors.v, stages.values_full(), key_head, at, 0, length);
  }

  // The lengths of the batch of a head, if they are shorter than the tensors.
  __device__ int queries_of(int head) const {
    return shorter_length(expressions.used_queries(head / C::kHeads), C::kRows);
  }
  __device__ int keys_of(int head) const {
    return shorter_length(expressions.used_keys(head / C::kHeads), C::kColumns);
  }
  static __device__ int shorter_length(int length, int size) {
    constexpr int kNone = 1 << 30;
    return S::kClears && length < size ? length : kNone;
  }

  // Whether a block of rows, from row `at` on, has some that are past the length, but in the
  // tensor.
  template <class P, int kRows, int kSize>
  static __device__ bool has_tail(int at, int length) {
    return S::kClears && !P::kPacked && at < kSize && length - at < kRows;
  }
  __device__ unsigned tails_of_step(int head, unsigned rows) const {
    if constexpr (!S::kClears || !C::kRandom) return 0;
    const int first = rows & kKeyBits, length = queries_of(head);
    unsigned tails = has_tail<typename C::Queries, C::kBlockRows, C::kRows>(first, length) +
                     has_tail<typename C::Outputs, C::kBlockRows, C::kRows>(first, length);
    if (steps & kFirstStep) {
      const int key = get(kFirstKey), of_keys = keys_of(head);
      tails += has_tail<typename C::Keys, S::kKeys, C::kColumns>(key, of_keys) +
               has_tail<typename C::Values, S::kKeys, C::kColumns>(key, of_keys);
    }
    return tails * kOneTail;
  }

  // Announces so many bytes more, for the barrier that it returns.
  template <class P, int kColumns, int kRows, int kHeads, int kSize>
  __device__ unsigned copy_panels(unsigned to, const TensorMap* maps, unsigned full, int unit,
                                  int at, int more, int length) const {
    constexpr int kPanel = kRows * 128, kBytes = kColumns * kRows * 2;
    if (has_tail<P, kRows, kSize>(at, length)) {
      full = announce_tail<kColumns / 64, kPanel>(to, full, max(length - at, 0), kBytes + more);
    } else {
      arrive_expecting(full, kBytes + more);
    }
    const int b = unit / kHeads;
    for (int panel = 0; panel < kColumns / 64; ++panel) {
      copy_box(to + panel * kPanel, maps[P::kPacked ? b : 0], full, panel * 64, at, unit % kHeads,
               P::kPacked ? 0 : b);
    }
    return full;
  }
  template <int kPanels, unsigned kPanelBytes>
  __device__ unsigned announce_tail(unsigned to, unsigned full, unsigned present,
                                    unsigned bytes) const {
    if constexpr (!S::kClears) {
      return full;
    } else {
      const int n = get(kTail);
      const unsigned before = present * 128;
      stages.tails().announce(n, {full, to + before, kPanelBytes - before, kPanels, kPanelBytes},
                              bytes);
      set(kTail, n + 1);
      return stages.tails().barrier(n);
    }
  }
};

}  // namespace kernels
