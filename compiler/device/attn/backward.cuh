// Backward attention over lists of row blocks, for compute capability 9.0.
//
// Keys stay. A block of threads takes 128 keys of one head, 64 for each of its two warp groups
// (Gradients), or 64 where columns are many (below), and the rows of all heads that share them
// stream by, kBlockRows at a time, which one thread copies (RowProducer). Scores are transposed, so
// that weights stay in registers: rows of an accumulator are keys, its columns are rows of q.
//
//   S^T = K Q^T       P^T = exp(S^T - lse)         dV += P^T dO
//   dP^T = V dO^T     dS^T = P^T (dP^T - delta) d  dK += dS^T Q      d: the score's derivative
//                                                  dQ^T += K^T dS^T
//
// With kSigmoid, P^T is the sigmoid of S^T, dS^T = P^T (1 - P^T) dP^T d, and there is neither lse
// nor delta.
//
// The products of step i, in the order in which a warp group issues them:
//
//   dP(i) | dV(i) | dK(i)  dQ(i-1)  S(i+1)
//     P(i)    dS(i)                               what is computed meanwhile
//
// With more than 128 columns, registers of a warp group do not hold dK and dV of 64 keys. Then the
// warp groups have the same 64 keys, and both compute S. One makes dK, and dS, of which the other
// makes dQ:
//
//   keys    S(i)   dP(i)   dK(i)
//   values  S(i)   dQ(i-1) dV(i)
//
// dK and dV are complete when the last row is, and have the same bits in every run. dS goes through
// shared memory, because dQ takes the keys of both warp groups. dQ is summed in global memory, in
// f32, in the order of registers, and convert() makes dq of it.
// Before all this, prepare() computes delta, the sums of dO O over each row.
//
// Blocks of keys that many rows see, or all where there are few, are divided (kDivided,
// division.cuh): each part of their steps is an item of its own. It stores its sums of dK and dV in
// f32, and merge_parts() adds those of all parts, in a fixed order. Parts are taken before all
// other items, unless sums are ordered.
//
// An item has at least two steps: where fewer rows see its keys, it takes rows past the last one,
// whose weights are 0. The heads of a block of rows follow each other, or all rows of a head those
// of another (kHeadsOutside).
//
// If sums are ordered (C::kOrdered), each block of rows of a head has a turn: blocks of keys add to
// its dQ one after another, in ascending order, and each stores its successor. They are taken in
// that order, too, parts in the place of their block of keys, and only by blocks of threads that
// run. So the first that is not complete waits for none. Their rows are taken from the last to the
// first.
//
// Rows past the lengths of a batch have no weights, but they may be NaN. Blocks of keys past them
// are not read, and what else is copied of them is cleared (tails.cuh): by a warp that has no other
// task, or one that draws for random dropout.
//
// A generated kernel gives three classes:
//   C  constants: sizes, strides
//   E  expressions, inlined: weight(), scale(), evaluate(..), mask(..), keep(..), keys(b),
//      queries(b), used_keys(b) and used_queries(b), which are at most these: masks that are
//      padding hide all others; and of random dropout seed(), offset(). A table that scores read at
//      [.., row, key] is copied beside the rows (kTable), and evaluate(..) is given its entry.
//      kParts: how often scores read learned tensors with a gradient (learned_parts.cuh), kLearned:
//      each of these; element<n>(..): which element a score reads, -1: none; local<n>(..): dS' of
//      one of dS
//   L  lists: which row blocks a block of keys sees (Tile, Run), rows in the place of keys;
//      before(i): if sums are ordered, how far before that of run i the last block of keys is that
//      sees the same rows; 0: there is none; with kDivided, the number of parts at most, parts(),
//      part(i) and most() as in Division; with kDivided and kItems, of other items, if sums are
//      ordered: divided_blocks(), how many, and divided_block(i)
#pragma once

#include "attn/division.cuh"
#include "attn/forward.cuh"
#include "attn/learned_parts.cuh"
#include "attn/philox.cuh"
#include "attn/sections.cuh"
#include "attn/tails.cuh"
#include "attn/transposed.cuh"

namespace kernels {

// A score without its constant factor, and the score's derivative by the scaled product.
struct Scored {
  float score, slope;
};
// Derivatives by kHeld elements of learned tensors, too.
template <int kHeld>
struct ScoredBy : Scored {
  float by[kHeld];
};

// Where the elements of a tensor are, which has kColumns columns. kAligned: its rows are
// contiguous, at multiples of 16 bytes. kPacked: a batch begins at row starts[b] of all (thd), and
// has no rows past its length.
template <long long kBatch, long long kHead, long long kRow, long long kColumn_, int kColumns_,
          bool kAligned, bool kPacked_>
struct Places {
  static constexpr long long kColumn = kColumn_;
  static constexpr int kColumns = kColumns_;
  static constexpr bool kPacked = kPacked_;

  static __device__ long long place(const int* starts, int b, int h, int row) {
    return (kPacked ? starts[b] * kRow : b * kBatch) + h * kHead + row * kRow;
  }
  // Eight adjacent columns.
  static __device__ __forceinline__ void load(const unsigned short* from, unsigned (&pairs)[4]) {
    if constexpr (kAligned) {
      const uint4 all = *reinterpret_cast<const uint4*>(from);
      pairs[0] = all.x, pairs[1] = all.y, pairs[2] = all.z, pairs[3] = all.w;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        pairs[i] = from[2 * i * kColumn] | (unsigned)from[(2 * i + 1) * kColumn] << 16;
      }
    }
  }
  static __device__ __forceinline__ void store(unsigned short* to, const unsigned (&pairs)[4]) {
    if constexpr (kAligned) {
      *reinterpret_cast<uint4*>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) to[i * kColumn] = pairs[i / 2] >> (i & 1) * 16;
    }
  }
};

constexpr int kPartsOfBlock = 8;  // one for each warp
template <class C>
constexpr long long kPartsOfTurn = (long long)C::kBatches* C::kHeads* C::kKeyBlocks* kPartsOfBlock;
constexpr int kMostOwn = 8;

// What the kernel reads and writes; gradients that are not wanted are null.
struct BackwardTensors {
  const TensorMap *q, *k, *v, *d_o;  // of packed tensors one for each batch (sequence_maps.cuh)
  const int* column_starts;          // the first key of each batch, if keys or values are packed
  const float *exponents, *deltas;  // [B, Hq, kPaddedRows]: -lse log2(e), -inf in empty rows; delta
  float* query_sums;  // [B, Hq, kDepth / 16, kPaddedRows / 8, 32, 4], see Gradients::add_queries
  int* turns;         // [B, Hq, kRowBlocks], 0 at first: the block of keys that adds next
  unsigned short *dk, *dv;
  float* key_sums;  // of parts: [parts, kKeys, kDepth + kWidth], dK before dV
  float* parts;  // [.., B, Hq, kKeyBlocks, kPartsOfBlock], 0 at first: of learned tensors of heads
  int* counter;  // 0 at first
  const TensorMap* table;
  // Sums of other learned tensors: Largest, then ExactSums or FixedSums of each, 0 at first.
  unsigned long long* words = nullptr;
  void* own[kMostOwn] = {};  // gradients of learned tensors, 0 where no block of scores is
};

// Addresses in shared memory.
template <class C>
struct BackwardStages {
  static constexpr int kKeys = C::kKeys, kStages = 2;
  static constexpr bool kShared = kKeys == 64;  // both warp groups have the same keys
  // Number of steps whose words are kept: what adds dQ is some steps behind.
  static constexpr int kStepWords = 8;
  static constexpr int kKeyBytes = kKeys * C::kDepth * 2, kValueBytes = kKeys * C::kWidth * 2;
  static constexpr int kQueryBytes = C::kBlockRows * C::kDepth * 2;
  static constexpr int kGradientBytes = C::kBlockRows * C::kWidth * 2;
  static constexpr int kSlopeBytes = C::kBlockRows * kKeys * 2;
  static constexpr int kSumBytes = C::kBlockRows * C::kDepth * 4;
  static constexpr int kRowBytes = C::kBlockRows * 4;
  static constexpr int kTableBytes = C::kTable ? C::kBlockRows * kKeys * 2 : 0;
  // What random dropout keeps, of some steps: 8 bytes for each thread of the warp groups
  // (KeptDrawer).
  static constexpr int kDrawn = C::kRandom ? 4 : 0;
  static constexpr int kDrawnBytes = kKeys * 16;
  static constexpr int kDrawers = C::kOrdered ? 2 : 3;  // warps that draw it: those without a task
  static constexpr int kQueries = kKeyBytes + kValueBytes;
  static constexpr int kGradients = kQueries + kStages * kQueryBytes;
  static constexpr int kSlopes = kGradients + kStages * kGradientBytes;
  static constexpr int kTables = kSlopes + kStages * kSlopeBytes;
  static constexpr int kSums = kTables + kStages * kTableBytes;
  static constexpr int kRowValues = kSums + kSumBytes;
  static constexpr int kDraws = kRowValues + 2 * kStages * kRowBytes;
  static constexpr int kBarriers = kDraws + kDrawn * kDrawnBytes;
  static constexpr int kWords = kBarriers + 16 * (3 + 3 * kStages + kDrawn);
  static constexpr int kScratch = kWords + 64 + 16 * kStepWords;
  static constexpr int kScratchBytes = WarpScores<C::kBlockRows / 2>::kScratch * 4;  // of a warp
  static constexpr int kTails = kScratch + (C::kDiagonals ? kKeys / 16 * kScratchBytes : 0);
  // Rows past the lengths, which maps of sequences leave out.
  static constexpr bool kClears =
      (C::kLengths || C::kPadded) &&
      !(C::Queries::kPacked && C::Keys::kPacked && C::Values::kPacked && C::Outputs::kPacked);
  using RowTails = Tails<kClears ? 2 + 2 * kStages : 0>;
  static constexpr int kBytes = kTails + RowTails::kBytes;

  unsigned base;

  __device__ unsigned keys() const { return base; }
  __device__ unsigned values() const { return base + kKeyBytes; }
  __device__ unsigned query(int n) const { return base + kQueries + n * kQueryBytes; }
  __device__ unsigned gradient(int n) const { return base + kGradients + n * kGradientBytes; }
  __device__ unsigned slope(int n) const { return base + kSlopes + n * kSlopeBytes; }
  __device__ unsigned table(int n) const { return base + kTables + n * kTableBytes; }
  // The sums of 16 columns.
  __device__ unsigned sums(int columns) const {
    return base + kSums + columns * (C::kBlockRows * 64);
  }
  __device__ unsigned exponents(int n) const { return base + kRowValues + n * kRowBytes; }
  __device__ unsigned deltas(int n) const { return exponents(kStages + n); }
  // Barriers: those of keys are empty when values are, too.
  __device__ unsigned keys_full() const { return base + kBarriers; }
  __device__ unsigned values_full() const { return keys_full() + 16; }
  __device__ unsigned query_full(int n) const { return keys_full() + 16 * (2 + n); }
  __device__ unsigned gradient_full(int n) const { return query_full(kStages + n); }
  __device__ unsigned slope_full(int n) const { return gradient_full(kStages + n); }
  __device__ unsigned sums_full() const { return slope_full(kStages); }
  // "Empty" when the rows of the step are known.
  __device__ unsigned drawn_full(unsigned step) const { return sums_full() + 16 * (1 + step % 4); }
  __device__ unsigned drawn(unsigned step) const { return base + kDraws + step % 4 * kDrawnBytes; }
  // Words of the item: its unit (see kOfPart), block of keys, and number of steps. Words of a step:
  // its rows and head, whose turn to wait for, and the next one.
  __device__ unsigned item_words() const { return base + kWords; }
  // Largest::power, if learned tensors share elements.
  __device__ unsigned power_word() const { return item_words() + 60; }
  // The producer's own, see ListWord.
  __device__ unsigned list_word(int i) const { return item_words() + 12 + 4 * i; }
  __device__ unsigned step_words(unsigned step) const {
    return item_words() + 64 + step % kStepWords * 16;
  }

  __device__ RowTails tails() const { return {base + kTails}; }

  __device__ float* scratch(int warp) const {
    unsigned char* const first = shared_memory() + (base - shared_address(shared_memory()));
    return reinterpret_cast<float*>(first + kScratch + warp * kScratchBytes);
  }

  __device__ void init() const {
    constexpr int kWarps = 8, kWarpsOfRole = kShared ? 4 : kWarps;
    for (int n = 0; n < 2 + 3 * kStages; ++n) {
      const bool of_slopes = n >= 2 + 2 * kStages;
      init_barrier(keys_full() + 16 * n, of_slopes ? kWarpsOfRole : 1);
      init_barrier(keys_full() + 16 * n + 8, of_slopes ? kWarpsOfRole : kWarps);
    }
    init_barrier(sums_full(), kWarpsOfRole);
    init_barrier(sums_full() + 8, 1);
    for (int n = 0; n < kDrawn; ++n) {
      init_barrier(drawn_full(n), kDrawers);
      init_barrier(empty_of(drawn_full(n)), 1);
    }
    tails().init();
    publish_barriers();
  }
};

// Bits in the word of a step's rows, besides kMasked: how many tails the step has, if a warp that
// draws clears them.
constexpr unsigned kOneTail = 2, kTailBits = 7 * kOneTail;

// Marks an item whose unit is instead the number of the part that it is.
constexpr int kOfPart = 1 << 30;
template <class C>
constexpr bool kDivides = C::kDivided > 0;
// Whether parts are among other items, in the order of their blocks of keys.
template <class C>
constexpr bool kPartsInOrder = kDivides<C>&& C::kOrdered&& C::kItems > 0;

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

// One thread. If sums are ordered, it adds dQ of each step, which the warp groups hand over: they
// do not wait for the turn.
template <class C>
struct QueryAdder {
  using S = BackwardStages<C>;
  const S stages;
  const BackwardTensors& tensors;

  __device__ void run() const {
#pragma unroll 1
    for (unsigned step = 0;; ++step) {
      wait(stages.sums_full(), step & 1);
      const unsigned rows = load_shared(stages.step_words(step));
      if (rows == kEndOfStream) break;
      const int first = (int)(rows & kKeyBits);
      if (first < C::kRows)
        add(step, load_shared(stages.step_words(step) + 4), first);
      else
        arrive(empty_of(stages.sums_full()));
    }
    wait_for_sums();
  }

 private:
  __device__ void add(unsigned step, int head, int first) const {
    int* const turn = tensors.turns + head * C::kRowBlocks + first / C::kBlockRows;
    wait_for_turn(turn, load_shared(stages.step_words(step) + 8));
    float* to =
        tensors.query_sums + ((long long)head * (C::kDepth / 16) * C::kPaddedRows + first) * 16;
#pragma unroll 1
    for (int columns = 0; columns < C::kDepth / 16; ++columns) {
      add_floats(to, stages.sums(columns), C::kBlockRows * 64);
      to += C::kPaddedRows * 16;
    }
    const int next = load_shared(stages.step_words(step) + 12);
    wait_for_reads();
    arrive(empty_of(stages.sums_full()));
    wait_for_sums();
    pass_turn(turn, next);
  }
};

// A warp that draws what random dropout keeps of each step, in the numbering of
// Consumer::drop_at_random: the words of a call are of a row and 2 keys of each 8 of 32. It is up
// to two steps ahead of the warp groups: further, the rows of a step are not known yet.
template <class C, class E>
struct KeptDrawer {
  using S = BackwardStages<C>;
  const S stages;
  const E& expressions;
  const int drawer;

  __device__ void run() const {
    const uint2 random_key = dropout_key(*expressions.seed(), *expressions.offset());
    int tails = 0;
#pragma unroll 1
    for (unsigned step = 0;; ++step) {
      wait(empty_of(stages.drawn_full(step)), step / 4 & 1);
      if (load_shared(stages.step_words(step)) == kEndOfStream) return;
      draw(step, random_key);
      __syncwarp();
      if (lane() == 0) arrive(stages.drawn_full(step));
      if constexpr (S::kClears) {
        if (drawer == 0) clear_tails(step, tails);
      }
    }
  }

 private:
  static __device__ unsigned lane() { return thread_read_again() % 32; }

  // Clears the tails of a step, whose copies it waits for; `tails` are those before.
  __device__ __forceinline__ void clear_tails(unsigned step, int& tails) const {
    const int end = tails + (int)((load_shared(stages.step_words(step)) & kTailBits) / kOneTail);
#pragma unroll 1
    for (; tails < end; ++tails) stages.tails().clear(tails);
  }

  // At a time, a warp draws for 64 keys and 8 rows. A lane has 2 of the rows, and 8 of 32 keys: of
  // these, adjacent ones are those of threads of a warp group that are 4 apart.
  __device__ __forceinline__ void draw(unsigned step, uint2 random_key) const {
    const unsigned words = stages.step_words(step);
    const unsigned first_key = (load_shared(words + 12) - 1) * S::kKeys + lane() / 16 * 32;
    const unsigned row = (load_shared(words) & kKeyBits) + lane() % 4 * 2;
    const unsigned to =
        stages.drawn(step) + lane() / 16 * 512 + lane() / 4 % 4 * 64 + lane() % 4 * 8;
#pragma unroll 1
    for (int keys = 0; keys < S::kKeys; keys += 64) {
      const unsigned counter = (first_key + keys) / 8 + lane() / 4 % 4;
#pragma unroll 1
      for (int i = drawer; i < C::kBlockRows / 8; i += S::kDrawers) {
        draw_rows(counter, row + i * 8, words, random_key, to + keys * 16 + i);
      }
    }
  }

  // Draws the bits of two rows: four bits for each of four threads, as Gradients::is_kept reads.
  __device__ __forceinline__ void draw_rows(unsigned counter, unsigned row, unsigned words,
                                            uint2 random_key, unsigned to) const {
    const unsigned head = load_shared(words + 4), h = head % C::kHeads, b = head / C::kHeads;
    uint4 drawn[2] = {dropout_counter(expressions, counter, row, h, b),
                      dropout_counter(expressions, counter, row + 1, h, b)};
    philox<kDropoutRounds>(drawn, random_key);
    const uint4 &x = drawn[0], &y = drawn[1];
    store_bits(to, x.x, y.x, x.y, y.y);
    store_bits(to + 256, x.z, y.z, x.w, y.w);
  }
  static __device__ __forceinline__ void store_bits(unsigned to, unsigned x0, unsigned x1,
                                                    unsigned x2, unsigned x3) {
    const unsigned bits =
        kept_halves<E::kDropped>(x0) & 0x10001 | kept_halves<E::kDropped>(x1) & 0x20002 |
        kept_halves<E::kDropped>(x2) & 0x40004 | kept_halves<E::kDropped>(x3) & 0x80008;
    store_byte(to, bits);
    store_byte(to + 32, bits >> 16);
  }
};

template <class C>
constexpr int kDiagonalsOfHead = C::kRows + C::kColumns - 1;

// A thread of a warp group.
template <class C, class E>
struct Gradients {
  using Float = typename C::Float;
  using S = BackwardStages<C>;
  static constexpr bool kShared = S::kShared;
  static constexpr int kScores = C::kBlockRows / 2;
  // A warp group computes dQ of so many times 64 columns, in one or two parts, and, where there are
  // 64 in all and two compute it, of a half of the rows.
  static constexpr int kPanels = kShared ? C::kDepth / 64 : 1;
  static constexpr int kParts = kPanels > 1 ? 2 : 1;
  static constexpr int kPanelsOfPart = (kPanels + kParts - 1) / kParts;
  static constexpr bool kHalves = !kShared && C::kDepth == 64;
  static constexpr int kSumRows = kHalves ? C::kBlockRows / 2 : C::kBlockRows;
  static_assert(kShared || C::kDepth <= 128, "two warp groups, 64 columns each");

  const S stages;
  const BackwardTensors& tensors;
  const E& expressions;
  const int group;
  const float exponent;  // what makes powers of 2 of products, or of modified scores
  unsigned steps = 0;    // as those of the producer
  int key = 0;           // the first of this thread's two; the other is 8 further
  float dk[C::kDepth / 2], dv[C::kWidth / 2], s[kScores], dp[kScores];
  float dq[kPanelsOfPart][kSumRows / 2];
  unsigned p[kScores / 2], ds[kScores / 2];
  float held[E::kHeld + 1][kScores];  // weights times the derivatives by elements; the last is none
  static constexpr bool kDrops = E::kKeep || E::kRandom;
  unsigned kept[2] = {};  // what dropout keeps of a step: bit_of()

  __device__ __forceinline__ Gradients(const S& stages_, const BackwardTensors& tensors_,
                                       const E& expressions_, int group_)
      : stages(stages_),
        tensors(tensors_),
        expressions(expressions_),
        group(group_),
        exponent(expressions_.weight() * kLog2E) {}

  __device__ __forceinline__ void run() {
#pragma unroll
    for (int i = 0; i < C::kDepth / 2; ++i) dk[i] = 0;
#pragma unroll
    for (int i = 0; i < C::kWidth / 2; ++i) dv[i] = 0;
    if constexpr (!kShared)
      run_as<Role::both>();
    else if (group == 0)
      run_as<Role::keys>();
    else
      run_as<Role::values>();
  }

 private:
  // What a warp group makes: dK and dS, dV and dQ, or all of them.
  enum class Role { both, keys, values };

  template <Role kRole>
  __device__ __forceinline__ void run_as() {
    while (begin_item()) {
      int left = (int)shared_word(stages.item_words() + 8) - 2;
      multiply_keys();
      wait(stages.values_full(), steps >> 31);
      step<kRole, false, true>();
#pragma unroll 1
      for (; left > 0; --left) step<kRole, true, true>();
      step<kRole, true, false>();
      finish_item<kRole>();
    }
    if (tensors.query_sums == nullptr || kRole == Role::keys) return;
    wait_for_sums_to_be_empty(steps);
    if (lane() != 0) return;
    if constexpr (C::kOrdered)
      arrive(stages.sums_full());
    else
      wait_for_sums();
  }

  // Read again each time: all registers are taken.
  __device__ __forceinline__ static unsigned lane() { return thread_read_again() % 32; }
  __device__ __forceinline__ static unsigned warp() {  // of the group
    return thread_read_again() / 32 & 3;
  }
  __device__ __forceinline__ static unsigned shared_word(unsigned address) {
    return __shfl_sync(~0u, load_shared(address), 0);
  }
  __device__ __forceinline__ void release(unsigned full) {
    __syncwarp();
    if (lane() == 0) arrive(empty_of(full));
  }

  __device__ __forceinline__ static unsigned parity_of(unsigned step) { return step >> 1 & 1; }

  // False at the end of the stream.
  __device__ __forceinline__ bool begin_item() {
    wait(stages.keys_full(), steps >> 31);
    if (shared_word(stages.item_words()) == kEndOfStream) return false;
    key = shared_word(stages.item_words() + 4) * S::kKeys + warp() * 16 + lane() / 4;
    if (!kShared) key += group * 64;
    return true;
  }

  template <Role kRole>
  __device__ __forceinline__ void finish_item() {
    const unsigned last = steps - 1;
    if constexpr (kRole != Role::keys) {
      wait(stages.slope_full(last & 1), parity_of(last));
      multiply_slopes<0>(last & 1);
      if constexpr (kParts > 1) begin_part<1>(last);
    }
    wait_for_products<0>();
    if constexpr (kRole != Role::keys) pin_queries(), pin(dv);
    if constexpr (kRole != Role::values) pin(dk);
    const int unit = shared_word(stages.item_words());
    if constexpr (kRole != Role::keys) release(stages.slope_full(last & 1));
    release(stages.keys_full());
    if constexpr (kRole != Role::keys) {
      add_queries<kParts - 1>(last);
      store<typename C::Values>(tensors.dv, C::kDepth, unit, dv, E::kKeptScale);
    }
    if constexpr (kRole != Role::values) {
      store<typename C::Keys>(tensors.dk, 0, unit, dk, expressions.scale());
    }
    steps ^= 1u << 31;
  }

  template <Role kRole, bool kPrevious, bool kNext>
  __device__ __forceinline__ void step() {
    if constexpr (kRole == Role::both) step_of_both<kPrevious, kNext>();
    if constexpr (kRole == Role::keys) step_of_keys<kPrevious, kNext>();
    if constexpr (kRole == Role::values) step_of_values<kPrevious, kNext>();
  }

  template <bool kPrevious, bool kNext>
  __device__ __forceinline__ void step_of_keys() {
    const unsigned n = steps & 1;
    wait(stages.gradient_full(n), parity_of(steps));
    wait_for_products<0>();
    pin(s);
    multiply_gradients(n);
    weigh(n);
    wait(empty_of(stages.slope_full(n)), parity_of(steps) ^ 1);
    wait_for_products<0>();
    pin(dp);
    make_slopes(n);
    release(stages.gradient_full(n));
    add_product(dk, ds, stages.query(n), kPrevious);
    learn();
    ++steps;
    if constexpr (kNext) multiply_keys();
    wait_for_products<kNext>();
    pin(dk);
    release(stages.query_full(n));
  }

  template <bool kPrevious, bool kNext>
  __device__ __forceinline__ void step_of_values() {
    const unsigned n = steps & 1, before = n ^ 1;
    wait_for_products<0>();
    pin(s);
    if constexpr (kPrevious) {
      wait(stages.slope_full(before), parity_of(steps - 1));
      multiply_slopes<0>(before);
    }
    weigh(n);
    release(stages.query_full(n));
    if constexpr (kPrevious && kParts > 1) begin_part<1>(steps - 1);
    wait(stages.gradient_full(n), parity_of(steps));
    add_product(dv, p, stages.gradient(n), kPrevious);
    ++steps;
    if constexpr (kNext) multiply_keys();
    wait_for_products<kNext>();
    pin_queries(), pin(dv);
    release(stages.gradient_full(n));
    if constexpr (kPrevious) {
      release(stages.slope_full(before));
      add_queries<kParts - 1>(steps - 2);
    }
  }

  template <bool kPrevious, bool kNext>
  __device__ __forceinline__ void step_of_both() {
    const unsigned n = steps & 1, before = n ^ 1;
    wait(stages.gradient_full(n), parity_of(steps));
    wait_for_products<0>();
    pin(s);
    multiply_gradients(n);
    weigh(n);
    add_product(dv, p, stages.gradient(n), kPrevious);
    wait(empty_of(stages.slope_full(n)), parity_of(steps) ^ 1);
    wait_for_products<1>();
    pin(dp);
    make_slopes(n);
    add_product(dk, ds, stages.query(n), kPrevious);
    learn();
    wait_for_products<1>();
    pin(dv);
    release(stages.gradient_full(n));
    if constexpr (kPrevious) {
      wait(stages.slope_full(before), parity_of(steps - 1));
      multiply_slopes<0>(before);
    }
    ++steps;
    if constexpr (kNext) {
      multiply_keys();
    }
    wait_for_products<kPrevious + kNext>();
    pin(dk);
    release(stages.query_full(n));
    if constexpr (kPrevious) {
      wait_for_products<kNext>();
      pin_queries();
      release(stages.slope_full(before));
      add_queries<0>(steps - 2);
    }
  }

  __device__ __forceinline__ void pin_queries() {
#pragma unroll
    for (int panel = 0; panel < kPanelsOfPart; ++panel) pin(dq[panel]);
  }

  // Begins a part of dQ, after the part before.
  template <int kPart>
  __device__ __forceinline__ void begin_part(unsigned step) {
    wait_for_products<0>();
    pin_queries();
    add_queries<kPart - 1>(step);
    multiply_slopes<kPart>(step & 1);
  }

  // S^T of the current step, once it is there.
  __device__ __forceinline__ void multiply_keys() {
    wait(stages.query_full(steps & 1), parity_of(steps));
    multiply<C::kDepth>(s, stages.keys(), stages.query(steps & 1));
  }
  // dP^T
  __device__ __forceinline__ void multiply_gradients(int n) {
    multiply<C::kWidth>(dp, stages.values(), stages.gradient(n));
  }
  template <int kColumns>
  __device__ __forceinline__ void multiply(float (&c)[kScores], unsigned of_keys,
                                           unsigned of_rows) const {
    const auto x = matrix(unknown(of_keys + (kShared ? 0 : group * 64 * 128)), 1024, 16);
    const auto y = matrix(unknown(of_rows), 1024, 16);
    begin_products();
    Products<C::kBlockRows, false>::first(Float{}, c, x, y);
#pragma unroll
    for (int i = 1; i < kColumns / 16; ++i) {
      Products<C::kBlockRows, false>::add(Float{}, c, x + i / 4 * (S::kKeys * 128 / 16) + i % 4 * 2,
                                          y + i / 4 * (C::kBlockRows * 128 / 16) + i % 4 * 2);
    }
    commit_products();
  }

  // dV += P^T dO, dK += dS^T Q
  template <int kOutputs>
  __device__ __forceinline__ void add_product(float (&c)[kOutputs], unsigned (&x)[kScores / 2],
                                              unsigned of_rows, bool adds) const {
    const auto y = matrix(unknown(of_rows), 1024, C::kBlockRows * 128);
    pin(c), pin(x);
    begin_products();
#pragma unroll
    for (int i = 0; i < C::kBlockRows / 16; ++i) {
      Weighted<2 * kOutputs>::add(Float{}, c, x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3],
                                  y + i * 128, i > 0 || adds);
    }
    commit_products();
  }

  static __device__ constexpr int panels_of(int part) {
    return part < kParts - 1 ? kPanelsOfPart : kPanels - part * kPanelsOfPart;
  }
  // The first of a part.
  __device__ __forceinline__ int first_panel(int part) const {
    return kShared ? part * kPanelsOfPart : kHalves ? 0 : group;
  }

  // dQ^T = K^T dS^T, of all keys.
  template <int kPart>
  __device__ __forceinline__ void multiply_slopes(int n) {
    const unsigned from = stages.keys() + first_panel(kPart) * (S::kKeys * 128);
    const unsigned rows = kHalves ? group * (kSumRows * 128) : 0;
    const auto y = matrix(unknown(stages.slope(n) + rows), 1024, 16);
    begin_products();
#pragma unroll
    for (int panel = 0; panel < panels_of(kPart); ++panel) {
      const auto x = matrix(unknown(from + panel * (S::kKeys * 128)), 1024, S::kKeys * 128);
      Products<kSumRows, true>::first(Float{}, dq[panel], x, y);
#pragma unroll
      for (int i = 1; i < S::kKeys / 16; ++i) {
        Products<kSumRows, true>::add(Float{}, dq[panel], x + i * 128,
                                      y + i / 4 * (C::kBlockRows * 128 / 16) + i % 4 * 2);
      }
    }
    commit_products();
  }

  // The rows and head of a step.
  struct RowBlock {
    unsigned rows;           // the first, a multiple of 16, and kMasked
    int head;                // of all batches
    unsigned first_row = 0;  // of this thread's scores, in the block

    __device__ int b() const { return head / C::kHeads; }
    __device__ int h() const { return head % C::kHeads; }
    __device__ int first() const { return (int)(rows & kKeyBits); }
  };
  __device__ __forceinline__ RowBlock rows_of(unsigned step) const {
    return {shared_word(stages.step_words(step)), (int)shared_word(stages.step_words(step) + 4),
            (lane() & 3) * 2};
  }

  // The row of score i: register 4 j + 2 r + e is row 8 j + 2 (lane % 4) + e and key `key` + 8 r.
  // The compiler sees the low bits of the row.
  __device__ __forceinline__ int row_of(const RowBlock& block, int i) const {
    const int first = block.first() + i / 8 * 16;
    return first | (i / 4 & 1) * 8 | block.first_row | (i & 1);
  }
  __device__ __forceinline__ int key_of(int i) const { return key + (i / 2 & 1) * 8; }
  // The row and the key within those that tensors have.
  __device__ __forceinline__ int held_row(const RowBlock& block, int i) const {
    return E::kReadsTensors ? min(row_of(block, i), C::kRows - 1) : row_of(block, i);
  }
  __device__ __forceinline__ int held_key(int i) const {
    return E::kReadsTensors ? min(key_of(i), C::kColumns - 1) : key_of(i);
  }

  // Whether scores of the block may be hidden, as those of rows past the last one are: their
  // exponents are -inf, but a modified score may be inf.
  static constexpr bool kHidesKeys = C::kLengths || C::kColumns % S::kKeys != 0;
  static constexpr bool kHidesRows = E::kScore && !C::kRowsFit;
  static constexpr bool kMayHide = E::kMask || kHidesKeys || kHidesRows;
  __device__ __forceinline__ bool hides(const RowBlock& block) const {
    return (E::kMask && block.rows & kMasked) ||
           (kHidesKeys && (key | S::kKeys - 1) >= expressions.keys(block.b())) ||
           (kHidesRows && block.first() + C::kBlockRows > expressions.queries(block.b()));
  }
  __device__ __forceinline__ bool shows(const RowBlock& block, int i) const {
    bool shown = true;
    if constexpr (E::kMask) {
      if (block.rows & kMasked) {
        shown = expressions.mask(block.b(), block.h(), held_row(block, i), held_key(i));
      }
    }
    if (kHidesKeys) shown &= key_of(i) < expressions.keys(block.b());
    if (kHidesRows) shown &= row_of(block, i) < expressions.queries(block.b());
    return shown;
  }

  // Makes weights of the products, and keeps in `s` weights times slopes.
  __device__ __forceinline__ void weigh(unsigned n) {
    const RowBlock block = rows_of(steps);
    if constexpr (E::kKeep) keep(block);
    if constexpr (E::kRandom) {
      wait(stages.drawn_full(steps), steps >> 2 & 1);
      take_kept();
    }
    if constexpr (kHidesFirst || !kMayHide) {
      if (hides(block)) hide(block);
      weigh<false>(block, n);
    } else if (hides(block)) {
      weigh<true>(block, n);
    } else {
      weigh<false>(block, n);
    }
  }
  __device__ __forceinline__ void hide(const RowBlock& block) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = shows(block, i) ? s[i] : nothing();
  }
  // Hidden products become -inf before weights are made, where that takes fewer registers.
  static constexpr bool kHidesFirst = !E::kScore || E::kReadsTensors || C::kTable;
  template <bool kHides>
  __device__ __forceinline__ void weigh(const RowBlock& block, unsigned n) {
    const unsigned exponents = stages.exponents(n) + (lane() & 3) * 8;
    unsigned entries[4] = {};  // of the table, for two j
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j) {
      const float2 added = load_two(exponents + j * 32);
      if constexpr (C::kTable) {
        if (j % 2 == 0) load_transposed(entries, transposed(stages.table(n)) + j / 2 * 2048);
      }
      RowBlock own = block;  // whose rows are not kept for all j
      if (kHides) own.rows = unknown(own.rows), own.first_row = unknown(own.first_row);
      float weights[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool shown = kHides                    ? shows(own, 4 * j + i)
                           : kHidesFirst && kMayHide ? s[4 * j + i] != nothing()
                                                     : true;
        const unsigned entry = entries[j % 2 * 2 + i / 2] >> (i & 1) * 16;
        weights[i] = weight_of(block, 4 * j + i, i & 1 ? added.y : added.x, shown,
                               C::Entry::widen((unsigned short)entry));
        if (kDrops && !is_kept(4 * j + i)) weights[i] = 0;
      }
      p[2 * j] = pair(Float{}, weights[0], weights[1]);
      p[2 * j + 1] = pair(Float{}, weights[2], weights[3]);
    }
  }

  // Four bits of each byte: those of the registers from 4 j on are of byte j.
  static __device__ constexpr int bit_of(int i) { return i % 16 / 4 * 8 + i % 4; }
  __device__ __forceinline__ bool is_kept(int i) const { return kept[i / 16] >> bit_of(i) & 1; }

  __device__ __forceinline__ void keep(const RowBlock& block) {
    kept[0] = kept[1] = 0;
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const bool keeps = expressions.keep(block.b(), block.h(), held_row(block, i), held_key(i));
      kept[i / 16] |= (unsigned)keeps << bit_of(i);
    }
  }

  // The same for random dropout, which a KeptDrawer has drawn.
  __device__ __forceinline__ void take_kept() {
    const unsigned thread = (thread_read_again() - 128) % (2 * S::kKeys);
    const float2 both = load_two(stages.drawn(steps) + thread * 8);
    kept[0] = __float_as_uint(both.x), kept[1] = __float_as_uint(both.y);
  }

  // The weight of a score that is a power of 2, 0 for -inf, and what the score's derivative is
  // multiplied by.
  static __device__ __forceinline__ float weight_at(float x) {
    return E::kSigmoid ? reciprocal(1 + power_of_two(-x)) : power_of_two(x);
  }
  static __device__ __forceinline__ float slope_at(float weight) {
    return E::kSigmoid ? fmaf(-weight, weight, weight) : weight;
  }

  __device__ __forceinline__ float weight_of(const RowBlock& block, int i, float added, bool shown,
                                             float entry) {
    if constexpr (!E::kScore) {
      const float weight = weight_at(fmaf(s[i], exponent, added));
      s[i] = slope_at(weight);
      return weight;
    } else {
      const auto scored =
          expressions.evaluate(block.b(), block.h(), held_row(block, i), held_key(i), entry, s[i]);
      const float exponent_of = fmaf(scored.score, exponent, added);
      const float weight = weight_at(shown ? exponent_of : nothing());
      const float of_score = slope_at(weight);
      s[i] = E::kFiniteSlope || weight != 0 ? of_score * scored.slope : 0.0f;
      if constexpr (E::kHeld > 0) {
#pragma unroll
        for (int n = 0; n < E::kHeld; ++n) {
          held[n][i] = weight != 0 ? of_score * scored.by[n] : 0.0f;
        }
      }
      return weight;
    }
  }

  // dS^T of a step, for this warp group and for those that make dQ.
  __device__ __forceinline__ void make_slopes(int n) {
    differentiate(n);
    publish_writes();
    __syncwarp();
    if (lane() == 0) arrive(stages.slope_full(n));
  }

  // Adds what differentiate() left of this step to the gradients of learned tensors, while the
  // product that makes dK is computed.
  __device__ __forceinline__ void learn() {
    if constexpr (E::kParts > 0) add_part<0>(rows_of(steps));
  }
  // This one and those behind it.
  template <int kPart>
  __device__ __forceinline__ void add_part(const RowBlock& block) {
    if constexpr (E::kLearned[kPart].turns > 1) {
#pragma unroll 1
      for (int turn = 0; turn < E::kLearned[kPart].turns; ++turn) add_turn<kPart>(block, turn);
    } else {
      add_turn<kPart>(block, 0);
    }
    if constexpr (kPart + 1 < E::kParts) add_part<kPart + 1>(block);
  }
  template <int kPart>
  __device__ __forceinline__ void add_turn(const RowBlock& block, int turn) {
    if constexpr (E::kLearned[kPart].is_long) {
      float parts[kScores];
#pragma unroll
      for (int i = 0; i < kScores; ++i) parts[i] = s[i];
#pragma unroll 1
      for (int i = 0; i < kScores; ++i) parts[i] = part_by<kPart>(block, parts[i], i, turn);
      add_sums<kPart>(block, turn, [&](int i) { return parts[i]; });
    } else {
      add_sums<kPart>(block, turn, [&](int i) { return part_of<kPart>(block, i, turn); });
    }
  }
  template <int kPart, typename Part>
  __device__ __forceinline__ void add_sums(const RowBlock& block, int turn, Part part) {
    constexpr Reach kReach = E::kLearned[kPart].reach;
    const WarpScores<kScores> scores{lane()};
    const int first_row = block.first(), first_key = key - (int)(lane() / 4);
    const auto element = [&](int row, int of_key) {
      return element_of<kPart>(block, first_row + row, first_key + of_key, turn);
    };
    const auto add = [&](int row, int of_key, float sum) {
      add_to_element<kPart>(element(row, of_key), sum);
    };
    if constexpr (kReach == Reach::heads) {
      const long long place = E::kLearned[kPart].place + turn * kPartsOfTurn<C>;
      add_to_heads(place, block.head, scores.sum(part));
    } else if constexpr (kReach == Reach::row) {
      scores.add_rows(part, add);
    } else if constexpr (kReach == Reach::column) {
      scores.add_columns(part, add);
    } else if constexpr (kReach == Reach::diagonal) {
      float* const scratch = stages.scratch((kShared ? 0 : group * 4) + warp());
      scores.add_diagonals(scratch, part, [&](int distance, float sum) {
        add_to_diagonal<kPart>(block.head, first_row - first_key + distance, sum);
      });
    } else if constexpr (kReach == Reach::unknown) {
      scores.add_runs(part, element,
                      [&](long long of_run, float sum) { add_to_element<kPart>(of_run, sum); });
    } else {
      add_to_own<kPart>(block);
    }
  }
  // The element that the score of `row` and `of_key` reads, or -1.
  template <int kPart>
  __device__ __forceinline__ long long element_of(const RowBlock& block, int row, int of_key,
                                                  int turn) const {
    return expressions.template element<kPart>(block.b(), block.h(), min(row, C::kRows - 1),
                                               min(of_key, C::kColumns - 1), turn);
  }
  template <int kPart>
  __device__ __forceinline__ void add_to_element(long long element, float sum) const {
    constexpr LearnedPart kOf = E::kLearned[kPart];
    if (sum == 0 || element < 0) return;
    ExactSums{tensors.words + kOf.place, kOf.elements}.add(element, sum);
  }
  // Whose row is so far from its column.
  template <int kPart>
  __device__ __forceinline__ void add_to_diagonal(int head, int distance, float sum) const {
    constexpr LearnedPart kOf = E::kLearned[kPart];
    const int n = distance + C::kColumns - 1;
    if (sum == 0 || (unsigned)n >= kDiagonalsOfHead<C>) return;
    const long long at = (long long)head * kDiagonalsOfHead<C> + n;
    if constexpr (kOf.bits == 0) {
      ExactSums{tensors.words + kOf.place, kOf.elements}.add(at, sum);
    } else {
      const float units = sum * units_of<kPart>();
      FixedSums::add(tensors.words + kOf.place + at, units);
      if (units - units != 0) fixed_sums().lose();
    }
  }
  // Adds to elements that no other score of the head reads, or stores what it has.
  template <int kPart>
  __device__ __forceinline__ void add_to_own(const RowBlock& block) const {
    constexpr LearnedPart kOf = E::kLearned[kPart];
    const int row = row_of(block, 0);
    const long long first = expressions.template element<kPart>(block.b(), block.h(), row, key, 0);
    unsigned long long* const words = tensors.words + kOf.place + first;
    const float units = kOf.reach == Reach::shared ? units_of<kPart>() : 1;
    bool lost = false;
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int down = WarpScores<kScores>::row_of(i), right = WarpScores<kScores>::key_of(i);
      const long long at = down * kOf.row + right * kOf.column;
      const float part = part_of<kPart>(block, i, 0) * units;
      if (!C::kRowsFit && row + down >= C::kRows) continue;
      if (C::kColumns % S::kKeys != 0 && key + right >= C::kColumns) continue;
      if constexpr (kOf.reach == Reach::shared) {
        FixedSums::add(words + at, part);
        lost |= part - part != 0;
      } else {
        E::template store<kPart>(tensors.own[kOf.place], first + at, part);
      }
    }
    if (lost) fixed_sums().lose();
  }
  __device__ __forceinline__ FixedSums fixed_sums() const {
    return {reinterpret_cast<Largest*>(tensors.words), nullptr};
  }
  template <int kPart>
  __device__ __forceinline__ float units_of() const {
    return FixedSums::units((int)load_shared(stages.power_word()), E::kLearned[kPart].bits);
  }

  // What score i adds to the gradient.
  template <int kPart>
  __device__ __forceinline__ float part_of(const RowBlock& block, int i, int turn) const {
    constexpr LearnedPart kOf = E::kLearned[kPart];
    if constexpr (kOf.held >= 0) {
      return held[kOf.held][i];
    } else {
      return part_by<kPart>(block, s[i], i, turn);
    }
  }
  // Where it is known again, by what `slope` is, dS'.
  template <int kPart>
  __device__ __forceinline__ float part_by(const RowBlock& block, float slope, int i,
                                           int turn) const {
    const float by = expressions.template local<kPart>(block.b(), block.h(), held_row(block, i),
                                                       held_key(i), turn);
    return !E::kLearned[kPart].finite && slope == 0 ? 0 : slope * by;
  }

  // Only this warp adds there.
  __device__ __forceinline__ void add_to_heads(long long place, int head, float sum) const {
    const int block = (int)shared_word(stages.item_words() + 4);
    float* const to =
        tensors.parts + place + ((long long)head * C::kKeyBlocks + block) * kPartsOfBlock;
    if (lane() == 0) atomicAdd(to + group * 4 + warp(), sum);
  }

  // This lane's place in a matrix of rows of q that is stored as TMA does: panels of 64 keys, a row
  // of 128 bytes for each row of q, swizzled. Four matrices are 16 keys of 16 rows.
  __device__ __forceinline__ unsigned transposed(unsigned matrix) const {
    const unsigned panel = kShared ? 0 : group;
    return matrix + panel * (C::kBlockRows * 128) + (lane() & 7) * 128 + (lane() >> 4) * 1024 +
           ((warp() * 2 + (lane() >> 3 & 1) ^ lane() & 7) << 4);
  }

  // Makes dS^T, in registers and transposed in shared memory, and what learn() takes.
  __device__ __forceinline__ void differentiate(int n) {
    const unsigned deltas = stages.deltas(n) + (lane() & 3) * 8;
    const unsigned to = transposed(stages.slope(n));
    if constexpr (E::kRandom) take_kept();  // again: else 32 predicates are kept, in a register
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j) {
      const float2 delta = load_two(deltas + j * 32);
      float slopes[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float kept_part = dp[4 * j + i];
        if (kDrops) kept_part = is_kept(4 * j + i) ? kept_part : 0.0f;
        const float of_score = fmaf(kept_part, E::kKeptScale, -(i & 1 ? delta.y : delta.x));
        slopes[i] = s[4 * j + i] * of_score;
        if (E::kParts > 0) s[4 * j + i] = slopes[i];
#pragma unroll
        for (int n = 0; n < E::kHeld; ++n) held[n][4 * j + i] *= of_score;
      }
      ds[2 * j] = pair(Float{}, slopes[0], slopes[1]);
      ds[2 * j + 1] = pair(Float{}, slopes[2], slopes[3]);
      if (j % 2 == 1) {
        store_transposed(to + j / 2 * 2048, ds[2 * j - 2], ds[2 * j - 1], ds[2 * j], ds[2 * j + 1]);
      }
    }
  }

  // Adds a part of dQ of a step to the sums, or, if they are ordered, hands it over. 16 columns of
  // 8 rows are registers of a warp: float4 `lane` has columns lane / 4 and 8 further, each of rows
  // 2 (lane % 4) and the next.
  template <int kPart>
  __device__ __forceinline__ void add_queries(unsigned step) {
    if (tensors.query_sums == nullptr) return;
    const int columns = first_panel(kPart) * 4 + warp();
    const int first = kHalves ? group * kSumRows : 0;
    if constexpr (kPart == 0) wait_for_sums_to_be_empty(step);
#pragma unroll
    for (int panel = 0; panel < panels_of(kPart); ++panel) {
      const unsigned to = stages.sums(columns + panel * 4) + first * 64 + lane() * 16;
      const auto& c = dq[panel];
#pragma unroll
      for (int j = 0; j < kSumRows / 8; ++j) {
        store_shared(to + j * 512, c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3]);
      }
    }
    if constexpr (C::kOrdered && kPart < kParts - 1) return;
    publish_writes();
    __syncwarp();
    if (lane() != 0) return;
    if constexpr (C::kOrdered)
      arrive(stages.sums_full());
    else
      add_columns<kPart>(step, columns, first);
  }
  __device__ __forceinline__ void wait_for_sums_to_be_empty(unsigned step) const {
    if constexpr (C::kOrdered) {
      wait(empty_of(stages.sums_full()), step & 1 ^ 1);
    } else {
      if (lane() == 0) wait_for_reads();
      __syncwarp();
    }
  }
  // Adds, by one lane, what its warp stored: no warp waits for another.
  template <int kPart>
  __device__ __forceinline__ void add_columns(unsigned step, int columns, int first) const {
    const int row = (int)(load_shared(stages.step_words(step)) & kKeyBits);
    if (row >= C::kRows) return;
    const int head = (int)load_shared(stages.step_words(step) + 4);
    const long long place =
        ((long long)head * (C::kDepth / 16) + columns) * C::kPaddedRows + row + first;
#pragma unroll
    for (int panel = 0; panel < panels_of(kPart); ++panel) {
      add_floats(tensors.query_sums + (place + panel * 4 * C::kPaddedRows) * 16,
                 stages.sums(columns + panel * 4) + first * 64, kSumRows * 64);
    }
  }

  // Stores dK or dV of this thread's keys. Those of a part begin at column `first`.
  template <class P, int kOutputs>
  __device__ __forceinline__ void store(unsigned short* to, int first, int unit,
                                        const float (&c)[kOutputs], float factor) const {
    if (to == nullptr) return;
    if constexpr (kDivides<C>) {
      if (unit & kOfPart) return store_part(first, unit ^ kOfPart, c, factor);
    }
    const int b = unit / C::kKeyHeads, keys = P::kPacked ? expressions.keys(b) : C::kColumns;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int k = key + 8 * r;
      unsigned short* of_key = to + P::place(tensors.column_starts, b, unit % C::kKeyHeads, k);
#pragma unroll
      for (int part = 0; part < kOutputs / 16; ++part) {
        unsigned pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int from = (4 * part + i) * 4 + 2 * r;
          pairs[i] = pair(Float{}, c[from] * factor, c[from + 1] * factor);
        }
        exchange(pairs, lane());
        const int column = (4 * part + (lane() & 3)) * 8;
        if (k < keys && column < P::kColumns) P::store(of_key + column * P::kColumn, pairs);
      }
    }
  }

  template <int kOutputs>
  __device__ __forceinline__ void store_part(int first, int part, const float (&c)[kOutputs],
                                             float factor) const {
    constexpr int kRow = C::kDepth + C::kWidth;
    float* const to =
        tensors.key_sums + ((long long)part * S::kKeys + key % S::kKeys) * kRow + first;
#pragma unroll
    for (int i = 0; i < kOutputs; i += 2) {
      const int column = i / 4 * 8 + (lane() & 3) * 2;
      *reinterpret_cast<float2*>(to + i / 2 % 2 * 8 * kRow + column) =
          float2{c[i] * factor, c[i + 1] * factor};
    }
  }
};

// The kernel, for 384 threads.
template <class C, class E, class L>
ATTN_INLINE void backward(const BackwardTensors& tensors, const E& expressions, const L& lists) {
  const BackwardStages<C> stages{(shared_address(shared_memory()) + 1023) & ~1023u};
  if (threadIdx.x == 0) stages.init();
  if (C::kShares && threadIdx.x == 0) {
    store_shared(stages.power_word(), reinterpret_cast<const Largest*>(tensors.words)->power());
  }
  __syncthreads();
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (group == 0) {
    give_registers<24>();
    // The compiler sees that all threads of a warp take the same way.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if (warp == 0) {
      if (elect()) RowProducer<C, E, L>{stages, tensors, expressions, lists}.run();
    } else if (C::kOrdered && warp == 1) {
      if constexpr (C::kOrdered) {
        if (elect()) QueryAdder<C>{stages, tensors}.run();
      }
    } else if constexpr (C::kRandom) {
      constexpr int kFirst = 4 - BackwardStages<C>::kDrawers;
      KeptDrawer<C, E>{stages, expressions, warp - kFirst}.run();
    } else if constexpr (BackwardStages<C>::kClears) {
      if (warp == 3) stages.tails().clear_all();
    }
  } else {
    take_registers<240>();
    Gradients<C, E>(stages, tensors, expressions, group - 1).run();
  }
}

// Exponents and deltas of kPaddedRows rows of each head, 16 threads a row. Rows that are empty, or
// past the length, get the exponent -inf and the delta 0. With kSigmoid, o and lse are not read,
// and both are 0 for all others.
template <class C, class E>
ATTN_INLINE void prepare(const unsigned short* o, const unsigned short* d_o, const float* lse,
                         const int* row_starts, const E& expressions, float* exponents,
                         float* deltas) {
  using P = typename C::Outputs;
  const long long i = attn_thread(), row = i / 16;
  const int q = (int)(row % C::kPaddedRows), h = (int)(row / C::kPaddedRows % C::kHeads);
  const int b = (int)(row / C::kPaddedRows / C::kHeads), lane = (int)(i % 16);
  const bool exists = b < C::kBatches && q < expressions.queries(b);
  const float of_row = !exists ? nothing()
                       : E::kSigmoid
                           ? 0.0f
                           : lse[C::Statistics::place(row_starts, b, h % C::kHeadsOfClass, q) +
                                 h / C::kHeadsOfClass * C::kStatisticsClass];
  const bool empty = of_row == nothing();
  float sum = 0;
  for (int column = lane * 8; !E::kSigmoid && !empty && column < P::kColumns; column += 128) {
    const long long at = P::place(row_starts, b, h, q) + column * P::kColumn;
    unsigned x[4], y[4];
    P::load(o + at, x);
    P::load(d_o + at, y);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const auto element = [j](const unsigned(&pairs)[4]) {
        return C::Float::widen((unsigned short)(pairs[j / 2] >> (j & 1) * 16));
      };
      sum = fmaf(element(x), element(y), sum);
    }
  }
#pragma unroll
  for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane != 0 || b >= C::kBatches) return;
  exponents[row] = empty ? nothing() : -of_row * kLog2E;
  deltas[row] = sum;
}

// The square of a row, of which this thread has each 16th group of 8 columns.
template <class P, class Float>
ATTN_INLINE float share_of_square(const unsigned short* row) {
  float square = 0;
  for (int column = (int)(threadIdx.x % 16) * 8; column < P::kColumns; column += 128) {
    unsigned pairs[4];
    P::load(row + column * P::kColumn, pairs);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float x = Float::widen((unsigned short)(pairs[j / 2] >> (j & 1) * 16));
      square = fmaf(x, x, square);
    }
  }
  return square;
}

// Largest of rows of dO, then of v, 16 threads a row.
template <class C, class E>
ATTN_INLINE void find_largest(const unsigned short* d_o, const unsigned short* v,
                              const int* row_starts, const int* column_starts, const E& expressions,
                              unsigned long long* words) {
  using Float = typename C::Float;
  const long long of_gradients = (long long)C::kBatches * C::kHeads * C::kRows;
  const long long n = attn_thread() / 16;
  const bool is_value = n >= of_gradients;
  const long long i = is_value ? n - of_gradients : n;
  const int heads = is_value ? C::kKeyHeads : C::kHeads, rows = is_value ? C::kColumns : C::kRows;
  const int row = (int)(i % rows), h = (int)(i / rows % heads), b = (int)(i / rows / heads);
  float square = 0;
  if (is_value && b < C::kBatches && row < expressions.keys(b)) {
    const long long at = C::Values::place(column_starts, b, h, row);
    square = share_of_square<typename C::Values, Float>(v + at);
  }
  if (!is_value && row < expressions.queries(b)) {
    const long long at = C::Outputs::place(row_starts, b, h, row);
    square = share_of_square<typename C::Outputs, Float>(d_o + at);
  }
  include_square(words + is_value, square);
}

// Rows that a block of threads converts, through shared memory: kConvertedRows (kDepth + 1) floats.
constexpr int kConvertedRows = 32;

// Makes dq of its sums, which are in the order of registers (Gradients::add_queries): the share of
// this block of threads.
template <class C, class E>
ATTN_INLINE void convert(const float* sums, const int* row_starts, const E& expressions,
                         unsigned short* dq, int block) {
  using P = typename C::Queries;
  float* const tile = reinterpret_cast<float*>(shared_memory());
  constexpr int kStride = C::kDepth + 1;  // of its rows
  constexpr int kTiles = (C::kRows + kConvertedRows - 1) / kConvertedRows;
  const int head_of_all = block / kTiles, first = block % kTiles * kConvertedRows;
  const int b = head_of_all / C::kHeads, h = head_of_all % C::kHeads;
  const int rows = P::kPacked ? expressions.queries(b) : C::kRows;
  if (first >= rows) return;
  const float scale = expressions.scale();
  for (int i = threadIdx.x; i < kConvertedRows / 8 * C::kDepth * 2; i += blockDim.x) {
    const int lane = i % 32, eight = i / 32 % (kConvertedRows / 8);
    const int columns = i / 32 / (kConvertedRows / 8);
    const long long row =
        ((long long)head_of_all * (C::kDepth / 16) + columns) * C::kPaddedRows + first + eight * 8;
    const float4 four = reinterpret_cast<const float4*>(sums)[row * 4 + lane];
    float* const to = tile + (eight * 8 + lane % 4 * 2) * kStride + columns * 16 + lane / 4;
    to[0] = four.x, to[kStride] = four.y, to[8] = four.z, to[kStride + 8] = four.w;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kConvertedRows * C::kDepth / 8; i += blockDim.x) {
    const int row = i / (C::kDepth / 8), column = i % (C::kDepth / 8) * 8;
    if (first + row >= rows || column >= P::kColumns) continue;
    unsigned pairs[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float* from = tile + row * kStride + column + 2 * j;
      pairs[j] = pair(typename C::Float{}, from[0] * scale, from[1] * scale);
    }
    P::store(dq + P::place(row_starts, b, h, first + row) + column * P::kColumn, pairs);
  }
}

// Columns of dK or dV: 8 of a key.
struct KeyColumns {
  int b, h, key, first;

  template <class C, class P, class E>
  __device__ void store(const int* column_starts, const E& expressions, unsigned short* to,
                        const unsigned (&pairs)[4]) const {
    const int keys = P::kPacked ? expressions.keys(b) : C::kColumns;
    if (to == nullptr || key >= keys || first >= P::kColumns) return;
    P::store(to + P::place(column_starts, b, h, key) + first * P::kColumn, pairs);
  }
};

// The sum of four columns of all parts from `first` on, of which this thread has each kThreads-th.
// Their order is always the same.
template <int kPart, int kThreads>
ATTN_INLINE float4 sum_of_parts(const float* first, int part, int parts) {
  float4 sum{0, 0, 0, 0};
#pragma unroll 1
  for (; part < parts; part += kThreads) {
    const float4 x = *reinterpret_cast<const float4*>(first + (long long)part * kPart);
    sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
  }
#pragma unroll
  for (int away = 2; away < 2 * kThreads; away *= 2) {
    sum.x += __shfl_xor_sync(~0u, sum.x, away), sum.y += __shfl_xor_sync(~0u, sum.y, away);
    sum.z += __shfl_xor_sync(~0u, sum.z, away), sum.w += __shfl_xor_sync(~0u, sum.w, away);
  }
  return sum;
}

// Adds dK and dV of the parts of blocks of keys. Many blocks of threads do so, kMergersOfPart of
// them for each part: each adds an equal share of the part's keys. Eight threads add 8 columns of a
// key, four parts of either half at a time.
constexpr int kMergersOfPart = 8;
template <class C, class E, class L>
ATTN_INLINE void merge_parts(const float* sums, const int* column_starts, const E& expressions,
                             const L& lists, unsigned short* dk, unsigned short* dv, int block,
                             int blocks) {
  constexpr int kThreads = 4, kRow = C::kDepth + C::kWidth, kPart = C::kKeys * kRow;
  const int at_once = blockDim.x / (2 * kThreads), half = threadIdx.x & 1;
#pragma unroll 1
  for (int n = block; n < kMergersOfPart * lists.parts(); n += blocks) {
    const Part of = lists.part(n / kMergersOfPart);
    if (of.parts == 1) continue;
    const float* const first = sums + (long long)(n / kMergersOfPart - of.part) * kPart + half * 4;
    const int mergers = kMergersOfPart * of.parts;
    const int merger = kMergersOfPart * of.part + n % kMergersOfPart;
#pragma unroll 1
    for (int i = merger * at_once + threadIdx.x / (2 * kThreads); i < kPart / 8;
         i += mergers * at_once) {
      const float4 sum =
          sum_of_parts<kPart, kThreads>(first + i * 8, threadIdx.x / 2 % kThreads, of.parts);
      unsigned pairs[4] = {pair(typename C::Float{}, sum.x, sum.y),
                           pair(typename C::Float{}, sum.z, sum.w)};
      pairs[2] = __shfl_xor_sync(~0u, pairs[0], 1), pairs[3] = __shfl_xor_sync(~0u, pairs[1], 1);
      if (threadIdx.x % (2 * kThreads) != 0) continue;
      const int column = i % (kRow / 8) * 8, key = i / (kRow / 8);
      const bool of_keys = column < C::kDepth;
      const KeyColumns at{of.unit / C::kKeyHeads, of.unit % C::kKeyHeads,
                          lists.tile(of.tile).tile * C::kKeys + key,
                          of_keys ? column : column - C::kDepth};
      if (of_keys)
        at.store<C, typename C::Keys>(column_starts, expressions, dk, pairs);
      else
        at.store<C, typename C::Values>(column_starts, expressions, dv, pairs);
    }
  }
}

// Adds the sums of diagonals, one for each thread, to those of the elements that their scores read.
template <class C, int kPart, class E>
ATTN_INLINE void spread_diagonals(unsigned long long* words, const ExactSums& sums,
                                  const E& expressions) {
  constexpr LearnedPart kOf = E::kLearned[kPart];
  const long long i = attn_thread();
  const int head = (int)(i / kDiagonalsOfHead<C>);
  const int distance = (int)(i % kDiagonalsOfHead<C>)-(C::kColumns - 1);
  const int row = distance < 0 ? 0 : distance;
  double sum = 0;
  long long element = -1;
  if (i < kOf.elements) {
    if constexpr (kOf.bits == 0)
      sum = ExactSums{words + kOf.place, kOf.elements}.sum(i);
    else
      sum = FixedSums{reinterpret_cast<Largest*>(words), words + kOf.place}.sum(i, kOf.bits);
    element = expressions.template element<kPart>(head / C::kHeads, head % C::kHeads, row,
                                                  row - distance, 0);
  }
  // Those of a warp are often of one element, such as a bucket.
  const bool same = __all_sync(~0u, element == __shfl_sync(~0u, element, 0));
  if (same) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  }
  if (element >= 0 && (!same || threadIdx.x % 32 == 0)) sums.add(element, (float)sum);
}

// The sum, over the heads for which `element(b, h)` is that of this block of threads, of their
// parts (BackwardTensors::parts): this thread's share, in an order that is always the same.
template <class C, typename Element>
ATTN_INLINE double share_of_parts(const float* parts, Element element) {
  constexpr int kOfHead = C::kKeyBlocks * kPartsOfBlock;
  double share = 0;
  for (int head = 0; head < C::kBatches * C::kHeads; ++head) {
    if (element(head / C::kHeads, head % C::kHeads) != blockIdx.x) continue;
    for (int i = threadIdx.x; i < kOfHead; i += blockDim.x) {
      share += parts[(long long)head * kOfHead + i];
    }
  }
  return share;
}
// The sum of all shares, for the first thread.
ATTN_INLINE double sum_of_shares(double share) {
  double* const shares = reinterpret_cast<double*>(shared_memory());
  shares[threadIdx.x] = share;
  __syncthreads();
  double sum = 0;
  for (unsigned i = 0; threadIdx.x == 0 && i < blockDim.x; ++i) sum += shares[i];
  return sum;
}

}  // namespace kernels
