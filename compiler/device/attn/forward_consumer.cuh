// Threads of the forward kernel that compute.
#pragma once

#include "attn/exchange.cuh"
#include "attn/forward_stages.cuh"
#include "attn/forward_tensors.cuh"
#include "attn/philox.cuh"
#include "attn/reals.cuh"
#include "attn/tile_rows.cuh"
#include "attn/tile_runs.cuh"
#include "attn/wgmma.cuh"
#include "attn/which.cuh"

namespace kernels {

// A thread of a warp group. kSecond: it has the columns of o from kShare on, and no scores.
template <class C, class E, bool kSecond = false>
struct Consumer {
  using Float = typename C::Float;
  using Output = typename C::Output;
  using OutputBits = typename Output::Bits;
  using S = Stages<C>;
  static constexpr bool kOf8Bits = S::kOf8Bits;
  static constexpr int kFirstOfWidth = kSecond ? C::kShare : 0;
  static constexpr int kWidth = kSecond ? C::kWidth - C::kShare : C::kShare;
  static constexpr int kScores = C::kKeys / 2, kOutputs = kWidth / 2;
  static constexpr int kWeightsOfWord = 4 / S::kElement, kWords = kScores / kWeightsOfWord;
  // Whether the largest weight, of those that dropout keeps, is not that of the maximum.
  static constexpr bool kKeepsLargest = C::kAmaxOfWeights && (C::kLazy || E::kKeep || E::kRandom);
  // Whether maxima of rows are not computed for every block: Consumer::follow.
  static constexpr bool kFollows =
      kOf8Bits && C::kLazy && !E::kKeep && !E::kRandom && !E::kSigmoid && C::kShares == 1;
  static constexpr float kLeastRoom = 2.8f;  // above weights of 1, in powers of 2 (lowered_by)
  // Whether weights are packed while the product with those before may still run. Those of 8 bits
  // are few enough that both fit.
  static constexpr bool kPacksEarly = E::kRandom || kOf8Bits;
  static constexpr float kWeightScale = 32768;  // of kSigmoid

  const Stages<C> stages;
  const ForwardTensors& tensors;
  const E& expressions;
  const int group, lane;
  const int first_row;     // of the tile; the other is 8 below
  const int first_column;  // of a block
  const float exponent;    // what makes powers of 2 of scores
  const float scale;       // of products, if scores are modified ones of 8-bit floats
  const float raised;      // the binary logarithm of what weights of 8 bits are multiplied by
  const float limit;       // with kFollows: the largest power of 2 that is a weight
  const uint2 random_key;  // of random dropout
  Turn<C::kQueries> query{};
  Turn<C::kStages> key{}, value{};
  Turn<C::kTables> table{};
  Turn<2> handed{};
  unsigned tile_words[2] = {0, 0};  // of the tile: its rows take more registers (rows_of)
  unsigned block = 0;
  int adds = 0;              // whether o holds a sum
  float maximum[2], sum[2];  // with kFollows: the maximum as a power of 2
  float kept[2] = {0, 0};    // with kKeepsLargest: weights, as sums are; with kFollows: scores
  float o[kOutputs], s[kScores];
  unsigned p[kWords];

  __device__ __forceinline__ Consumer(const Stages<C>& stages_, const ForwardTensors& tensors_,
                                      const E& expressions_, int group_)
      : stages(stages_),
        tensors(tensors_),
        expressions(expressions_),
        group(group_),
        lane(threadIdx.x & 31),
        first_row(group_ * 64 + (threadIdx.x / 32 & 3) * 16 + (threadIdx.x & 31) / 4),
        first_column((threadIdx.x & 3) * 2),
        exponent(expressions_.weight() * kLog2E),
        scale(scale_of(expressions_)),
        raised(raised_by(tensors_)),
        limit(raised + slack()),
        random_key(key_of(expressions_)) {}

  __device__ __forceinline__ void run() {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] = 0;
    if (C::kTurns && group == C::kGroups - 1) arrive_named(1, 256);
    fetch(0);
    if (block == kEndOfStream) return;
    step<false>();
    while (block != kEndOfStream) step<true>();
    wait_for_values();
    weigh_values();
    wait_for_products<0>();
    pin(o);
    if constexpr (C::kShares > 1) hand_over(kEndOfStream, maximum, sum, maximum);
    finish(finished_rows_of(tile_words), {maximum, sum, kept});
  }

  // Weighs, in the second warp group, what the first hands over, block after block.
  __device__ __forceinline__ void weigh() {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] = 0;
    for (bool some = false;; some = true) {
      const unsigned words_before[2] = {tile_words[0], tile_words[1]};
      float factor[2];
      take_over(factor);
      if (block & kFirstOfTile) {
        if (some) finish(rows_of(words_before), {maximum, sum, kept});
        if (block == kEndOfStream) return;
      } else if (__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) {
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) o[i] *= factor[i / 2 & 1];
      }
      adds = !(block & kFirstOfTile);
      wait_for_values();
      weigh_values();
      wait_for_products<0>();
      pin(o);
      release(stages.value_full(value.stage));
      value.next();
    }
  }

 private:
  // Statistics of the two rows of a tile that the thread has.
  struct Statistics {
    const float (&maxima)[2], (&sums)[2], (&kept)[2];
  };
  // The largest of what a thread stores, as bits: of a weight and of o.
  struct Largest {
    unsigned weight = 0, output = 0;
  };

  // What weights of 8 bits are to be multiplied by: dropout scales them before they are rounded.
  static __device__ __forceinline__ float weight_scale(const ForwardTensors& tensors) {
    return *tensors.scale_s * E::kKeptScale;
  }
  // Number of powers of 2 by which weights are smaller, so that maxima move seldom: a factor of 256
  // leaves e4m3 1.75. An integer, which changes no rounding of normal numbers. 0 where weights of 1
  // saturate.
  static __device__ __forceinline__ float lowered_by(const ForwardTensors& tensors) {
    const float room = Float::kLog2OfMost - __log2f(weight_scale(tensors));
    return !kFollows || room < 0 ? 0 : fmaxf(ceilf(kLeastRoom - room), 0);
  }
  static __device__ __forceinline__ float raised_by(const ForwardTensors& tensors) {
    if constexpr (kOf8Bits) return __log2f(weight_scale(tensors)) - lowered_by(tensors);
    return 0;
  }

  static __device__ __forceinline__ float scale_of(const E& expressions) {
    if constexpr (kOf8Bits && E::kScore) return expressions.scale();
    return 1;
  }

  // Words of a thread: the block, the weights, then factors of o, or of a tile's first block the
  // two words of the tile, and maxima and sums of the tile before.
  __device__ __forceinline__ unsigned handed_word(int n) const {
    return stages.handed(handed.stage) + (n * 128 + threadIdx.x % 128) * 4;
  }

  __device__ __forceinline__ void hand_over(unsigned word, const float (&maxima)[2],
                                            const float (&sums)[2], const float (&factor)[2]) {
    const unsigned full = stages.handed_full(handed.stage);
    wait(empty_of(full), handed.parity ^ 1);
    store_shared(handed_word(0), word);
#pragma unroll
    for (int i = 0; i < kWords; ++i) store_shared(handed_word(1 + i), p[i]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const unsigned at = handed_word(1 + kWords + r);
      store_shared(at, word & kFirstOfTile ? tile_words[r] : __float_as_uint(factor[r]));
      if (word & kFirstOfTile) {
        store_shared(at + 2 * 512, __float_as_uint(maxima[r]));
        store_shared(at + 4 * 512, __float_as_uint(sums[r]));
      }
    }
    __syncwarp();
    if (lane == 0) arrive(full);
    handed.next();
  }

  __device__ __forceinline__ void take_over(float (&factor)[2]) {
    const unsigned full = stages.handed_full(handed.stage);
    wait(full, handed.parity);
    block = __shfl_sync(~0u, load_shared(handed_word(0)), 0);
#pragma unroll
    for (int i = 0; i < kWords; ++i) p[i] = load_shared(handed_word(1 + i));
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const unsigned at = handed_word(1 + kWords + r), word = load_shared(at);
      factor[r] = __uint_as_float(word);
      if (block & kFirstOfTile) {
        tile_words[r] = word;
        maximum[r] = __uint_as_float(load_shared(at + 2 * 512));
        sum[r] = __uint_as_float(load_shared(at + 4 * 512));
      }
    }
    __syncwarp();
    release(full);
    handed.next();
  }

  __device__ __forceinline__ void wait_for_values() {
    wait(stages.value_full(value.stage), value.parity);
    if constexpr (C::kGatherValues) publish_writes();
  }

  static __device__ __forceinline__ uint2 key_of(const E& expressions) {
    if constexpr (E::kRandom) return dropout_key(*expressions.seed(), *expressions.offset());
    return make_uint2(0, 0);
  }

  // Waits for the next block's keys. `offset`, which is 0, keeps the compiler from waiting earlier.
  __device__ __forceinline__ void fetch(unsigned offset) {
    wait(stages.key_full(key.stage) + offset, key.parity);
    if constexpr (C::kGatherKeys) publish_writes();
    block = __shfl_sync(~0u, load_shared(stages.key_word(key.stage)), 0);
  }

  __device__ __forceinline__ void release(unsigned full) {
    if (lane == 0) arrive(empty_of(full));
  }

  // The scores of a block, while the values of the one before are weighed.
  template <bool kWeighs>
  __device__ __forceinline__ void step() {
    const bool first = block & kFirstOfTile;
    const unsigned words_before[2] = {tile_words[0], tile_words[1]};
    const float maximum_before[2] = {maximum[0], maximum[1]}, sum_before[2] = {sum[0], sum[1]};
    const float kept_before[2] = {kept[0], kept[1]};
    if (first) begin_tile();
    if (C::kTurns) sync_named(1 + turn(), 256);
    multiply_keys();
    if (kWeighs) {
      wait_for_values();
      weigh_values();
    }
    if (C::kTurns) arrive_named(1 + (turn() + 1) % C::kGroups, 256);
    wait_for_products<kWeighs ? 1 : 0>();
    pin(s);
    release(stages.key_full(key.stage));
    if (block & kLastOfTile) {
      release(stages.query_full(query.stage));
      query.next();
    }
    float factor[2] = {1, 1};
    if constexpr (kFollows) {
      return follow<kWeighs>(first, words_before, {maximum_before, sum_before, kept_before});
    }
    const bool moved = weigh_scores(factor);
    key.next();
    unsigned packed[kPacksEarly ? kWords : 1];
    if constexpr (kPacksEarly) pack(packed);
    if constexpr (E::kRandom)
      drop_at_random(packed);
    else if constexpr (kPacksEarly)
      pin(packed);
    else
      pin(s);
    fetch(sum[0] + sum[1] < 0 ? 8 : 0);
    if (kWeighs) {
      take_products();
      if (first) {
        finish(finished_rows_of(words_before), {maximum_before, sum_before, kept_before});
      } else if (!E::kBounded && ((!C::kLazy && !kOf8Bits) || __any_sync(~0u, moved))) {
        scale_outputs(factor);
      }
    }
    adds = !first;
    if constexpr (kPacksEarly)
      take(packed);
    else
      pack(p);
    if constexpr (C::kShares > 1) {
      hand_over(first ? kFirstOfTile : 0, maximum_before, sum_before, factor);
    }
  }

  // The group, which takes no further registers for the numbers of barriers.
  __device__ __forceinline__ int turn() const { return kFollows ? unknown(group) : group; }

  __device__ __forceinline__ void take_products() {
    wait_for_products<0>();
    pin(o);
    release(stages.value_full(value.stage));
    value.next();
  }
  __device__ __forceinline__ void scale_outputs(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] *= factor[i / 2 & 1];
  }

  __device__ __forceinline__ void begin_tile() {
    wait(stages.query_full(query.stage), query.parity);
    const unsigned word = stages.query_word(query.stage);
    tile_words[0] = load_shared(word), tile_words[1] = load_shared(word + 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      maximum[i] = E::kBounded ? 0.0f : nothing(), sum[i] = kept[i] = 0;
      if (kFollows) maximum[i] = kLowest, kept[i] = nothing();
    }
  }

  __device__ __forceinline__ TileRows<C> rows_of(const unsigned (&words)[2]) const {
    TileRows<C> rows;
    rows.set(words[0], words[1], first_row);
    return rows;
  }
  // The same where a tile ends: registers are too few to keep what it takes beside blocks of 8
  // bits.
  __device__ __forceinline__ TileRows<C> finished_rows_of(const unsigned (&words)[2]) const {
    if constexpr (!kOf8Bits) return rows_of(words);
    const unsigned thread = unknown((int)threadIdx.x);
    TileRows<C> rows;
    rows.set(words[0], words[1], group * 64 + (thread / 32 & 3) * 16 + (thread & 31) / 4);
    return rows;
  }

  __device__ __forceinline__ void multiply_keys() {
    constexpr int kSteps = S::kKeyRow / 32;  // of a panel
    int rows_of_group = group * 64 * S::kKeyRow;
    // So that what describes each of many steps is not kept in registers.
    if constexpr (C::kDepth > (C::kSplits > 1 ? 192 : 256)) rows_of_group = unknown(rows_of_group);
    const auto a =
        matrix<S::kKeyRow / 2>(stages.query(query.stage) + rows_of_group, 8 * S::kKeyRow, 16);
    const auto b = matrix<S::kKeyRow / 2>(stages.key(key.stage), 8 * S::kKeyRow, 16);
    using Product = typename Which<kOf8Bits, ScoresOf8Bits<C::kKeys>, Scores<C::kKeys>>::Type;
    pin(s);
    begin_products();
#pragma unroll
    for (int i = 0; i < C::kDepth * S::kElement / 32; ++i) {
      Product::add(Float{}, s, a + i / kSteps * (S::kQueryPanel / 16) + i % kSteps * 2,
                   b + i / kSteps * (S::kKeyPanel / 16) + i % kSteps * 2, i > 0);
    }
    commit_products();
  }

  __device__ __forceinline__ void weigh_values() {
    if constexpr (kOf8Bits)
      weigh_transposed_values();
    else
      weigh_plain_values();
  }

  __device__ __forceinline__ void weigh_plain_values() {
    constexpr int kFirstPanel = kFirstOfWidth / C::kWidthPanel;
    const auto b = matrix<C::kWidthPanel>(stages.value(value.stage) + kFirstPanel * S::kValuePanel,
                                          8 * S::kValueRow, S::kValuePanel);
    pin(o);
    pin(p);
    begin_products();
#pragma unroll
    for (int i = 0; i < C::kKeys / 16; ++i) {
      Weighted<kWidth>::add(Float{}, o, p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3],
                            b + i * S::kValueRow, i > 0 ? 1 : adds);
    }
    commit_products();
  }

  __device__ __forceinline__ void weigh_transposed_values() {
    constexpr int kSteps = S::kValueRow / 32;  // of a panel
    const auto b = matrix<S::kValueRow / 2>(stages.value(value.stage), 8 * S::kValueRow, 16);
    pin(o);
    pin(p);
    begin_products();
#pragma unroll
    for (int i = 0; i < C::kKeys / 32; ++i) {
      WeightedOf8Bits<kWidth>::add(Float{}, o, p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3],
                                   b + i / kSteps * (S::kValuePanel / 16) + i % kSteps * 2,
                                   i > 0 ? 1 : adds);
    }
    commit_products();
  }

  // A word of 8-bit weights has those of a row in 16 columns, in the order in which
  // transposed_values.cuh stores keys.
  template <int kCount>
  __device__ __forceinline__ void pack(unsigned (&words)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (kOf8Bits) {
        const int from = i / 2 * 8 + i % 2 * 2;
        words[i] = pair(Float{}, s[from], s[from + 1]) | pair(Float{}, s[from + 4], s[from + 5])
                                                             << 16;
      } else {
        words[i] = pair(Float{}, s[2 * i], s[2 * i + 1]);
      }
    }
  }

  // Random dropout of a block, for whole calls of the generator: a thread has pairs of columns of
  // four groups of 8. No branch is between the exponentials and this, so the assembler puts the
  // multiplications, which depend on no score, among them.
  template <int kCount>
  __device__ __forceinline__ void drop_at_random(unsigned (&packed)[kCount]) {
    static_assert(C::kKeys % 32 == 0, "a block has whole calls of the generator");
    TileRows<C> rows;  // of its own: what is computed of them would be kept from block to block
    rows.set(tile_words[0], tile_words[1], unknown(first_row));
    unsigned counter = (block & kKeyBits) / 8 + (lane & 3);
#pragma unroll
    for (int i = 0; i < kScores; i += 16) {
      unsigned last = 0;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint4 words = philox<kDropoutRounds>(
            dropout_counter(expressions, counter, rows.q[r], rows.h[r], rows.b), random_key);
        const unsigned halves[4] = {
            kept_halves<E::kDropped>(words.x), kept_halves<E::kDropped>(words.y),
            kept_halves<E::kDropped>(words.z), kept_halves<E::kDropped>(words.w)};
        last = halves[3];
        keep_halves(packed, i, r, halves);
      }
      counter += last == 1 ? 5 : 4;  // it never is: all calls at once would take more registers
    }
    pin(packed);
  }

  // Keeps halves of row r and the scores from `from` on: pairs of two columns of each of four
  // groups of 8.
  template <int kCount>
  __device__ __forceinline__ void keep_halves(unsigned (&packed)[kCount], int from, int r,
                                              const unsigned (&halves)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (kOf8Bits) {
        if (j % 2 == 0) {
          packed[from / 4 + r + j] &= __byte_perm(halves[j], halves[j + 1], 0x6420);
        }
      } else {
        packed[from / 2 + r + 2 * j] &= halves[j];
      }
      if constexpr (kKeepsLargest) {
        const int at = from + 4 * j + 2 * r;
        kept[r] = fmaxf(kept[r], halves[j] & 1 ? s[at] : 0);
        kept[r] = fmaxf(kept[r], halves[j] >> 31 ? s[at + 1] : 0);
      }
    }
  }

  // The weights of the block before are read until now. The assembler would see through a plain
  // copy, and serialize the products.
  template <int kCount>
  __device__ __forceinline__ void take(const unsigned (&packed)[kCount]) {
    pin(p);
    const int zero = unknown(0);
#pragma unroll
    for (int i = 0; i < kCount; ++i) p[i] = packed[i] | zero;
  }

  // Column of score i: a multiple of 16, and low bits that the compiler sees. The bits below the
  // period are a value of their own, the same for all columns that are multiples of it apart: so
  // the compiler sees that they share what follows from the remainder.
  __device__ __forceinline__ auto column(int i) const {
    if constexpr (C::kPatches) {
      const Place first = patch_of_keys<C>(block);
      return place<C>(first.y + i / 4, (first.x | first_column) + (i & 1));
    } else {
      constexpr int kLow = E::kColumnPeriod - 1;
      const int key = (int)(block & kKeyBits), offset = i / 8 * 16;
      const int high = (key + offset) & ~kLow, low = ((key & kLow) + (offset & kLow)) & kLow;
      return high | low | first_column | (i / 4 & 1) * 8 | (i & 1);
    }
  }
  // One that tensors have.
  __device__ __forceinline__ auto held_column(int i) const {
    if constexpr (C::kPatches || !E::kReadsColumns)
      return column(i);
    else
      return min(column(i), C::kColumns - 1);
  }
  // Columns from score 0 to score i.
  __device__ __forceinline__ static int columns_to(int i) {
    if constexpr (C::kPatches)
      return i / 4 * C::kGrid + (i & 1);
    else
      return i / 4 * 8 + (i & 1);
  }

  // `shift`: what is to be added to all scores of a row, besides.
  __device__ __forceinline__ void modify(float (&shift)[2]) {
    const TileRows<C> rows = rows_of(tile_words);
    const auto lines_of = [&](int r) {
      return expressions.lines(rows.b, rows.h[r], rows.row(r), column(0));
    };
    const typename E::Lines lines[2] = {lines_of(0), lines_of(1)};
    if constexpr (C::kTables > 0) wait(stages.table_full(table.stage), table.parity);
#pragma unroll
    for (int part = 0; part < kScores / 8; ++part) {
      float entries[8] = {};
      if constexpr (S::kWideTable && C::kTables > 0)
        read_wide_table(part, entries);
      else if constexpr (C::kTables > 0)
        read_table(part, entries);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int i = 8 * part + j, r = i / 2 & 1, offset = columns_to(i);
        const float entry = entries[j];
        s[i] = expressions.score(rows.b, rows.h[r], rows.row(r), held_column(i), (float)offset,
                                 lines[r], entry, kOf8Bits ? s[i] * scale : s[i]);
      }
    }
    if constexpr (C::kTables > 0) {
      if (S::kWideTable) __syncwarp();  // loads of other lanes may still read it
      release(stages.table_full(table.stage));
      table.next();
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) shift[r] = lines[r].shift;
  }

  // The table's elements of 16 columns: pairs for this thread's two rows and 8 columns, then the
  // next 8. Each lane gives the address of a row of one of four matrices of 8 x 8.
  __device__ __forceinline__ void read_table(int part, float (&entries)[8]) const {
    const int of_tile = first_row - lane / 4 + (lane & 15);
    const int row = of_tile / (C::kPack / C::kTablePack);
    const int vector = (lane >> 4 ^ row & 7) * 16 ^ part % 4 * 32;
    unsigned pairs[4];
    load_matrices(pairs,
                  stages.table(table.stage) + row * 128 + vector + part / 4 * S::kTablePanel);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      entries[j] = C::Entry::widen((unsigned short)(pairs[j / 2] >> (j & 1) * 16));
    }
  }
  __device__ __forceinline__ void read_wide_table(int part, float (&entries)[8]) const {
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const int row = (first_row + (j & 2) * 4) / (C::kPack / C::kTablePack);
      const int column = 16 * part + j / 4 * 8 + first_column;
      const float2 two = load_two(stages.table(table.stage) + row * S::kTablePitch + column * 4);
      entries[j] = two.x, entries[j + 1] = two.y;
    }
  }

  // Scores that have a bound are hidden when they are weights. So no branch parts what makes a
  // score from its exponential, and both share the special-function unit without a gap.
  static constexpr bool kHidesWeights = E::kBounded && !E::kSigmoid;
  static __device__ __forceinline__ float hidden() { return kHidesWeights ? 0.0f : nothing(); }

  __device__ __forceinline__ void hide_masked() {
    const TileRows<C> rows = rows_of(tile_words);
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int r = i / 2 & 1;
      const bool shown = expressions.mask(rows.b, rows.h[r], rows.row(r), held_column(i));
      s[i] = shown ? s[i] : hidden();
    }
  }

  // The same by masks that read no tensor.
  __device__ __forceinline__ void hide_masked_by_indices() {
    const TileRows<C> rows = rows_of(tile_words);
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int r = i / 2 & 1;
      const bool shown = expressions.mask_by_indices(rows.b, rows.h[r], rows.row(r), column(i));
      s[i] = shown ? s[i] : hidden();
    }
  }

  __device__ __forceinline__ void hide_past_keys() {
    const int keys = expressions.keys(rows_of(tile_words).b);
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = column(i) < keys ? s[i] : hidden();
  }

  __device__ __forceinline__ void hide() {
    if constexpr (E::kMask) {
      constexpr unsigned kWhich = E::kMasksByIndices ? kMasked | kByIndices : kMasked;
      if ((block & kWhich) == kMasked) hide_masked();
      if constexpr (E::kMasksByIndices) {
        if (block & kByIndices) hide_masked_by_indices();
      }
    }
    if constexpr (!C::kPatches) {
      if (block & kPastKeys) hide_past_keys();
    }
  }

  __device__ __forceinline__ void drop() {
    const TileRows<C> rows = rows_of(tile_words);
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int r = i / 2 & 1;
      s[i] = expressions.keep(rows.b, rows.h[r], rows.row(r), held_column(i)) ? s[i] : 0.0f;
      if constexpr (kKeepsLargest) kept[r] = fmaxf(kept[r], s[i]);
    }
  }

  // Makes weights of the scores. Gets the factor of what was summed so far; true if it is not 1.
  __device__ __forceinline__ bool weigh_scores(float (&factor)[2]) {
    float shift[2] = {0, 0};
    if constexpr (E::kScore) modify(shift);
    if constexpr (!kHidesWeights) hide();
    bool moved = false;
    if constexpr (E::kSigmoid)
      sigmoid(shift);
    else
      moved = softmax(shift, factor);
    if constexpr (E::kKeep) drop();
    return moved;
  }

  // The sigmoid of each score, times kWeightScale: small weights would lose bits in f16. One
  // reciprocal, of a product, serves four scores of a row. It is 0 where the product overflows:
  // there each score has its own, which is 0 for -inf.
  __device__ __forceinline__ void sigmoid(const float (&shift)[2]) {
    constexpr float kInverseScale = 1 / kWeightScale;
    float added[2];  // to exponents; if infinite, a hidden score stays hidden
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float x = shift[r] * -exponent;
      added[r] = x < kLowest ? kLowest : x > -kLowest ? -kLowest : x;
    }
    sum[0] = 0;
#pragma unroll
    for (int i = 0; i < kScores; i += 8) {
      float pairs[2][2], inverse[2];  // products, for each row
#pragma unroll
      for (int j = i; j < i + 8; ++j) {
        const float e = power_of_two(fmaf(s[j], -exponent, added[j / 2 & 1]));
        s[j] = fmaf(e, kInverseScale, kInverseScale);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int j = i + 2 * r;
        pairs[r][0] = s[j] * s[j + 1], pairs[r][1] = s[j + 4] * s[j + 5];
        inverse[r] = reciprocal(pairs[r][0] * pairs[r][1]);
      }
      sum[0] += inverse[0] + inverse[1];  // so that the next keys are not waited for earlier
      if (__builtin_expect(inverse[0] == 0 || inverse[1] == 0, false)) {
#pragma unroll
        for (int j = i; j < i + 8; ++j) s[j] = reciprocal(s[j]);
        continue;
      }
#pragma unroll
      for (int j = i; j < i + 8; j += 2) {
        const int r = j / 2 & 1, half = j / 4 & 1;
        const float of_pair = inverse[r] * pairs[r][1 - half], x = s[j];
        s[j] = of_pair * s[j + 1], s[j + 1] = of_pair * x;
      }
    }
  }

  // Power of 2 by which the maximum may stay behind. Weights of 8 bits must not overflow.
  __device__ __forceinline__ float slack() const {
    if constexpr (!kOf8Bits)
      return 8;
    else
      return fminf(fmaxf(Float::kLog2OfMost - raised, 0), 8);
  }

  static constexpr int kFirstWeights = kScores < 128 ? 16 : 32;

  // The rest of a step of 8-bit floats, of as few instructions as can be: they take most of its
  // time. Lanes exchange their largest scores only where one exceeds the limit. The product of the
  // block before ends among the first exponentials, so weights go where it read those before,
  // without a copy.
  template <bool kWeighs>
  __device__ __forceinline__ void follow(bool first, const unsigned (&words_before)[2],
                                         const Statistics& before) {
    float shift[2] = {0, 0}, factor[2] = {1, 1};
    const bool moved = follow_scores(shift, factor);
    key.next();
    weigh_scores_between<0, kFirstWeights>(shift);
    // 0, as the sums are positive.
    fetch(unknown((int)(__float_as_uint(sum[0] + sum[1]) >> 28 & 8)));
    if (kWeighs) {
      take_products();
      if (first)
        finish(finished_rows_of(words_before), before);
      else if (moved)
        scale_outputs(factor);
    }
    adds = !first;
    pin(p);
    weigh_scores_between<kFirstWeights, kScores>(shift);
    pack(p);
  }

  // Modifies and hides scores, and gets what shifts their powers of 2. True if a maximum of the
  // warp moved; gets factors as softmax does.
  __device__ __forceinline__ bool follow_scores(float (&shift)[2], float (&factor)[2]) {
    float own[2];
    if constexpr (E::kScore) modify(shift);
    hide();
    largest_of_thread(own);
    bool above = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (E::kScore) {
        if (own[r] == nothing()) shift[r] = 0;  // so that hidden rows make no NaN
        own[r] += shift[r], shift[r] *= exponent;
      }
      if constexpr (C::kAmaxOfWeights) kept[r] = fmaxf(kept[r], own[r]);
      above |= fmaf(own[r], exponent, raised - maximum[r]) > limit;
    }
    const bool moved = __any_sync(~0u, above);
    if (moved) move_maxima(own, factor);
    return moved;
  }

  __device__ __forceinline__ void move_maxima(const float (&own)[2], float (&factor)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = fmaxf(own[r], __shfl_xor_sync(~0u, own[r], 1));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
      if (!(fmaf(largest, exponent, raised - maximum[r]) > limit)) continue;
      const float before = maximum[r];
      maximum[r] = fmaxf(largest * exponent, kLowest);
      factor[r] = power_of_two(before - maximum[r]);
      sum[r] *= factor[r];
    }
  }

  // The largest of the scores that a thread has of a row. Bits of floats compare as integers if the
  // largest is positive.
  __device__ __forceinline__ void largest_of_thread(float (&own)[2]) const {
    int most[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) most[j] = __float_as_int(s[j]);
#pragma unroll
    for (int i = 4; i < kScores; i += 8) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int further = i + 4 < kScores ? i + 4 : i;
        most[j] = largest_of(most[j], __float_as_int(s[i + j]), __float_as_int(s[further + j]));
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) own[r] = __int_as_float(max(most[2 * r], most[2 * r + 1]));
    if (__builtin_expect((__float_as_int(own[0]) | __float_as_int(own[1])) >= 0, true)) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      own[r] = s[2 * r];
#pragma unroll
      for (int i = 2 * r; i < kScores; i += 4) own[r] = fmaxf(own[r], fmaxf(s[i], s[i + 1]));
    }
  }

  // Makes weights of some of the scores, and adds them.
  template <int kFrom, int kTo>
  __device__ __forceinline__ void weigh_scores_between(const float (&shift)[2]) {
#pragma unroll
    for (int i = kFrom; i < kTo; ++i) {
      const int r = i / 2 & 1;
      const float added = raised - maximum[r];
      s[i] = power_of_two(fmaf(s[i], exponent, E::kScore ? added + shift[r] : added));
    }
#pragma unroll
    for (int i = kFrom; i < kTo; ++i) sum[i / 2 & 1] += s[i];
  }

  // Relative to the maximum of the row, and the sum of the weights.
  __device__ __forceinline__ bool softmax(float (&shift)[2], float (&factor)[2]) {
    bool moved = false;
    float added[2];  // to exponents
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (E::kBounded) {
        added[r] = shift[r] * exponent, factor[r] = 1;
        continue;
      }
      const float before = maximum[r];
      float largest = larger(before, largest_of_row(r, shift[r]));
      // -inf - -inf is NaN, and stays.
      if (C::kLazy) largest = (largest - before) * exponent > slack() ? largest : before;
      maximum[r] = largest;
      const float reference = reference_of(largest);
      factor[r] = largest == before ? 1.0f : power_of_two(before * exponent - reference);
      const float lowered = kOf8Bits ? raised - reference : -reference;
      added[r] = E::kScore ? fmaf(shift[r], exponent, lowered) : lowered;
      if constexpr (kKeepsLargest) kept[r] *= factor[r];
      moved |= largest != before;
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = weight_of(i, fmaf(s[i], exponent, added[i / 2 & 1]));
    if constexpr (kHidesWeights) hide();
    float part[2][2] = {{0, 0}, {0, 0}};
#pragma unroll
    for (int i = 0; i < kScores; ++i) part[i / 2 & 1][i & 1] += s[i];
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] = fmaf(sum[r], factor[r], part[r][0] + part[r][1]);
    return moved;
  }

  // 2^x for score i. Of each 16, kPolynomials do without the special-function unit.
  static __device__ __forceinline__ float weight_of(int i, float x) {
    constexpr int kShare = E::kPolynomials;
    if ((i + 1) * kShare / 16 == i * kShare / 16) return power_of_two(x);
    return power_of_two_by_polynomial(x);
  }

  // The largest of a row; no shift makes NaN of rows that are hidden.
  __device__ __forceinline__ float largest_of_row(int r, float& shift) const {
    float x = s[2 * r], y = s[2 * r + 1];
#pragma unroll
    for (int i = 4 + 2 * r; i < kScores; i += 4) x = larger(x, s[i]), y = larger(y, s[i + 1]);
    x = larger(x, y);
    if (x == nothing()) shift = 0;
    x += shift;
    x = larger(x, __shfl_xor_sync(~0u, x, 1));
    return larger(x, __shfl_xor_sync(~0u, x, 2));
  }
  // Where a maximum is an output, it is NaN if a score is. Elsewhere weights alone make NaN of o.
  static __device__ __forceinline__ float larger(float x, float y) {
    return C::kLazy ? fmaxf(x, y) : larger_or_nan(x, y);
  }

  // Stores a finished tile, if no part of it is missing.
  __device__ __forceinline__ void finish(const TileRows<C>& at, const Statistics& of) {
    Largest largest;
    if constexpr (C::kSplits == 1) {
      store(at, of, largest);
    } else {
      const bool any = __any_sync(~0u, at.q[0] < C::kRows);  // of the warp's rows: the first
      if (!any || !store_part(at, of.maxima, of.sums)) return;
      store_merged(at, largest);
    }
    if constexpr (C::kAmaxOfWeights) store_largest(tensors.amax_s, largest.weight);
    if constexpr (C::kAmaxOfOutputs) store_largest(tensors.amax_o, largest.output);
  }

  // The largest of a warp's, if there is no larger one yet.
  __device__ __forceinline__ void store_largest(unsigned* to, unsigned bits) const {
#pragma unroll
    for (int away = 1; away < 32; away *= 2) bits = max(bits, __shfl_xor_sync(~0u, bits, away));
    if (lane == 0 && bits > __ldcg(to)) atomicMax(to, bits);
  }
  // Bits of a magnitude; NaN is the largest.
  static __device__ __forceinline__ unsigned bits_of(float x) {
    return __float_as_uint(x) & 0x7fffffffu;
  }

  // What a warp stores of a part: for each lane two maxima and two sums, then o, row by row.
  static constexpr int kPartStatistics = 4 * 32, kPartSize = kPartStatistics + 16 * C::kShare;
  static constexpr int kWarps = 4 * C::kGroups * C::kShares;  // that store parts
  __device__ __forceinline__ int warp() const {
    return ((kSecond ? C::kGroups : 0) + group) * 4 + (threadIdx.x / 32 & 3);
  }
  __device__ __forceinline__ float* part_at(const TileRows<C>& at, int part) const {
    const int first = at.item / C::kSplits * C::kSplits;
    return tensors.parts + ((long long)(first + part) * kWarps + warp()) * kPartSize;
  }

  // True for the last part of the warp's rows.
  __device__ __forceinline__ bool store_part(const TileRows<C>& at, const float (&maxima)[2],
                                             const float (&sums)[2]) {
    float* to = part_at(at, at.item % C::kSplits);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      to[32 * r + lane] = maxima[r], to[32 * (2 + r) + lane] = sums[r];
      if (at.q[r] >= C::kRows) continue;
      float* row = to + kPartStatistics + (lane / 4 + 8 * r) * C::kShare + first_column;
#pragma unroll
      for (int i = 2 * r; i < kOutputs; i += 4) {
        *reinterpret_cast<float2*>(row + i / 4 * 8) = float2{o[i], o[i + 1]};
      }
    }
    __threadfence();
    __syncwarp();
    int arrived = 0;
    if (lane == 0) {
      arrived = atomicAdd(tensors.counter + 1 + at.item / C::kSplits * kWarps + warp(), 1);
    }
    arrived = __shfl_sync(~0u, arrived, 0);
    __syncwarp();
    __threadfence();
    return arrived == C::kSplits - 1;
  }

  // Merges the parts of the warp's rows and stores them: four rows at a time, so that many loads
  // are on their way together.
  __device__ __forceinline__ void store_merged(const TileRows<C>& at, Largest& most) {
    // They are in no register meanwhile; but ptxas has fewer for random dropout if they are
    // cleared.
    if constexpr (!E::kRandom) {
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) o[i] = 0;
    }
#pragma unroll 1
    for (int first = 0; first < 16; first += 4) {
      const int row = first + lane / 8, r = first / 8, from = row % 8 * 4;
      const int q = __shfl_sync(~0u, r == 0 ? at.q[0] : at.q[1], from);
      const int h = __shfl_sync(~0u, r == 0 ? at.h[0] : at.h[1], from);
      if (__any_sync(~0u, q < C::kRows)) store_merged_row(at, row, h, q, most);
    }
  }

  // Eight lanes have a row: each has every eighth part of its statistics, and 8 of 64 columns.
  __device__ __forceinline__ void store_merged_row(const TileRows<C>& at, int row, int h, int q,
                                                   Largest& most) {
    float factors[(C::kSplits + 7) / 8], total, merged[(kWidth + 63) / 64][8] = {};
    const float largest = merge_statistics(at, row, factors, total);
    const float factor = finish_row(at.b, h, q, {largest, total, 1}, lane % 8 == 0, most);
    const int columns = q < C::kRows ? kWidth - lane % 8 * 8 : 0;  // from the lane's first on
    merge_rows(part_at(at, 0) + kPartStatistics + row * C::kShare + lane % 8 * 8, columns, factors,
               merged);
    OutputBits* to = outputs() + place_of_row(at.b, h, q);
#pragma unroll
    for (int i = 0; i < kWidth; i += 64) {
      const float(&x)[8] = merged[i / 64];
      const int column = kFirstOfWidth + i + lane % 8 * 8;
      const bool stores = exists(at.b, q) && i < columns && column < C::kStored;
      unsigned pairs[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        pairs[j] = scaled(x[2 * j], x[2 * j + 1], factor, stores, most);
      }
      if (!stores) continue;
      if constexpr (sizeof(OutputBits) == 1) {
        store_columns(to, column, {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16});
      } else {
        store_columns(to, column, pairs);
      }
    }
  }

  // Adds the lane's columns of all parts, the first of which is at `from`.
  template <int kOfLane, int kVectors>
  __device__ __forceinline__ void merge_rows(const float* from, int columns,
                                             const float (&factors)[kOfLane],
                                             float (&merged)[kVectors][8]) const {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
#pragma unroll 4
      for (int n = 0; n < 8; ++n, from += kWarps * kPartSize) {
        if (8 * i + n >= C::kSplits) break;
        const float factor = __shfl_sync(~0u, factors[i], (lane & 24) | n);
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          if (64 * v < columns) add_eight(merged[v], from + 64 * v, factor);
        }
      }
    }
  }

  static __device__ __forceinline__ void add_eight(float (&to)[8], const float* from,
                                                   float factor) {
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
      const float4 four = __ldcg(reinterpret_cast<const float4*>(from + i));
      to[i] = fmaf(four.x, factor, to[i]), to[i + 1] = fmaf(four.y, factor, to[i + 1]);
      to[i + 2] = fmaf(four.z, factor, to[i + 2]), to[i + 3] = fmaf(four.w, factor, to[i + 3]);
    }
  }

  // Merges the statistics of a row: gives the factors of the parts that a lane has, and the sum and
  // the maximum of all.
  template <int kOfLane>
  __device__ __forceinline__ float merge_statistics(const TileRows<C>& at, int row,
                                                    float (&factors)[kOfLane], float& total) const {
    const int from = row / 8 * 32 + row % 8 * 4;  // the four lanes that had the row
    float largest = nothing();
    float4 sums[kOfLane];
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int part = 8 * i + lane % 8;
      const bool is_part = part < C::kSplits;
      const float* of = part_at(at, part) + from;
      factors[i] = is_part ? __ldcg(of) : nothing();
      sums[i] = is_part ? __ldcg(reinterpret_cast<const float4*>(of + 64)) : float4{0, 0, 0, 0};
      largest = larger(largest, factors[i]);
    }
    for (int away = 1; away < 8; away *= 2) {
      largest = larger(largest, __shfl_xor_sync(~0u, largest, away));
    }
    total = 0;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      factors[i] = factor_of(factors[i], largest);
      total = fmaf((sums[i].x + sums[i].y) + (sums[i].z + sums[i].w), factors[i], total);
    }
    for (int away = 1; away < 8; away *= 2) total += __shfl_xor_sync(~0u, total, away);
    return largest;
  }

  // What sums relative to one maximum are relative to another.
  __device__ __forceinline__ float factor_of(float from, float to) const {
    if (E::kBounded || from == to) return 1;
    return power_of_two(power_of(from) - reference_of(to));
  }
  __device__ __forceinline__ float reference_of(float largest) const {
    return largest == nothing() ? 0.0f : fmaxf(power_of(largest), kLowest);
  }
  // The power of 2 that a maximum stands for.
  __device__ __forceinline__ float power_of(float largest) const {
    return kFollows ? largest : largest * exponent;
  }

  // Stores rows that are complete.
  __device__ __forceinline__ void store(const TileRows<C>& at, const Statistics& of,
                                        Largest& most) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = of.sums[r], kept_of_row = of.kept[r];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      if constexpr (kKeepsLargest) {
        kept_of_row = fmaxf(kept_of_row, __shfl_xor_sync(~0u, kept_of_row, 1));
        kept_of_row = fmaxf(kept_of_row, __shfl_xor_sync(~0u, kept_of_row, 2));
      }
      const float factor = finish_row(at.b, at.h[r], at.q[r], {of.maxima[r], total, kept_of_row},
                                      lane % 4 == 0, most);
      if constexpr (sizeof(OutputBits) == 1) {
        store_row_of_bytes(at, r, factor, most);
      } else {
        store_row(at, r, factor, most);
      }
    }
  }

  // Statistics of a row: its largest score, the sum of its weights, and with kKeepsLargest the
  // largest of them.
  struct RowStatistics {
    float maximum, total, kept;
  };
  // Stores the statistics of a row, by one of its lanes. Returns what its o is to be multiplied by.
  __device__ __forceinline__ float finish_row(int b, int h, int q, RowStatistics of, bool stores,
                                              Largest& most) {
    const bool present = q < expressions.queries(b);
    float factor = 1 / kWeightScale;
    if constexpr (kOf8Bits) {
      const float scale_of_weights = weight_scale(tensors) * power_of_two(-lowered_by(tensors));
      of.total /= scale_of_weights;
      if constexpr (kFollows)
        of.kept = power_of_two(of.kept * exponent - of.maximum);
      else
        of.kept /= scale_of_weights;
    }
    if constexpr (!E::kSigmoid) {
      factor = store_statistics(b, h, q, of.maximum, of.total, !kSecond && stores && exists(b, q),
                                present);
    }
    if (!present) return 0;
    if constexpr (C::kAmaxOfWeights) {
      const float weight = (kKeepsLargest ? of.kept : 1) * factor * E::kKeptScale;
      if (exists(b, q)) most.weight = max(most.weight, bits_of(weight));
    }
    if constexpr (kOf8Bits) {
      return factor * power_of_two(lowered_by(tensors)) * *tensors.descale_s * *tensors.descale_v;
    } else {
      return factor * E::kKeptScale;
    }
  }

  __device__ __forceinline__ OutputBits* outputs() const {
    return static_cast<OutputBits*>(tensors.o);
  }

  __device__ __forceinline__ bool exists(int b, int q) const {
    return q < (C::kThdO ? expressions.queries(b) : C::kRows);
  }
  __device__ __forceinline__ long long place_of_row(int b, int h, int q) const {
    return first_of(b, C::kOutputBatch, C::kOutputRow) + h * C::kOutputHead + q * C::kOutputRow;
  }

  // Where a batch begins in memory, whose batches and rows are this far apart.
  __device__ __forceinline__ long long first_of(int b, long long batch, long long row) const {
    return C::kThdO ? tensors.row_starts[b] * row : b * batch;
  }

  // Heads may be those of several classes of rows.
  __device__ __forceinline__ long long place_of_statistics(int b, int h, int q) const {
    const long long at =
        first_of(b, C::kStatisticsBatch, C::kStatisticsRow) + q * C::kStatisticsRow;
    if (C::kStatisticsClass == 0) return at + h * C::kStatisticsHead;
    return at + h % C::kHeadsOfClass * C::kStatisticsHead +
           h / C::kHeadsOfClass * C::kStatisticsClass;
  }

  // Returns what o is to be multiplied by.
  __device__ __forceinline__ float store_statistics(int b, int h, int q, float largest, float total,
                                                    bool stores, bool present) {
    const long long at = place_of_statistics(b, h, q);
    const bool empty = total == 0 || !present;  // not if it is NaN
    float top = empty ? nothing() : power_of(largest);
    const auto put = [&](float* to, float value) {
      if (to != nullptr && stores) to[at] = value;
    };
    put(tensors.max, top * kLn2);
    put(tensors.sum_exp, empty ? 0.0f : total);
    if constexpr (E::kSink) {
      const float sink = present ? expressions.sink(h) * kLog2E : nothing();
      const float higher = larger(top, sink);
      const float part = empty ? 0.0f : total * power_of_two(top - higher);
      total = sink == nothing() ? part : part + power_of_two(sink - higher);
      put(tensors.max_with_sink, higher * kLn2);
      put(tensors.sum_exp_with_sink, total);
      put(tensors.lse, present ? (higher + __log2f(total)) * kLn2 : nothing());
      return empty ? 0.0f : power_of_two(top - higher) / total;
    }
    put(tensors.lse, empty ? nothing() : (top + __log2f(total)) * kLn2);
    return empty ? 0.0f : 1.0f / total;
  }

  // Two of a row of o. 0 for a factor of 0, whatever hidden values are.
  __device__ __forceinline__ unsigned scaled(float x, float y, float factor, bool exists,
                                             Largest& most) const {
    x *= factor, y *= factor;
    if constexpr (C::kAmaxOfOutputs) {
      const unsigned larger = max(bits_of(x), bits_of(y));
      if (exists && factor != 0) most.output = max(most.output, larger);
    }
    if constexpr (sizeof(OutputBits) == 1) x *= *tensors.scale_o, y *= *tensors.scale_o;
    const unsigned both = pair(Output{}, x, y);
    return factor == 0 ? 0 : both;
  }

  __device__ __forceinline__ unsigned scaled_pair(int group, int r, float factor, bool exists,
                                                  Largest& most) const {
    return scaled(o[4 * group + 2 * r], o[4 * group + 2 * r + 1], factor, exists, most);
  }

  __device__ __forceinline__ void store_row(const TileRows<C>& at, int r, float factor,
                                            Largest& most) {
    const bool exists = this->exists(at.b, at.q[r]);
    OutputBits* const row = outputs() + place_of_row(at.b, at.h[r], at.q[r]);
#pragma unroll
    for (int part = 0; part < kWidth / 32; ++part) {
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        pairs[i] = scaled_pair(4 * part + i, r, factor, exists, most);
      }
      exchange(pairs, lane);
      const int to = kFirstOfWidth + (4 * part + (lane & 3)) * 8;
      if (exists && to < C::kStored) store_columns(row, to, pairs);
    }
  }

  // A lane exchanges pairs of bytes of two groups of 8 columns at once: it has 16 columns then.
  __device__ __forceinline__ void store_row_of_bytes(const TileRows<C>& at, int r, float factor,
                                                     Largest& most) {
    const bool exists = this->exists(at.b, at.q[r]);
    OutputBits* const row = outputs() + place_of_row(at.b, at.h[r], at.q[r]);
    constexpr int kGroups = kWidth / 8;
#pragma unroll
    for (int part = 0; part < (kGroups + 7) / 8; ++part) {
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int group = 8 * part + 2 * i;
        pairs[i] = 0;
        if (group >= kGroups) continue;
        pairs[i] = scaled_pair(group, r, factor, exists, most) |
                   scaled_pair(group + 1, r, factor, exists, most) << 16;
      }
      exchange(pairs, lane);
      const int to = (4 * part + (lane & 3)) * 16;
      if (!exists) continue;
      if (to < C::kStored) {
        store_columns(
            row, to,
            {__byte_perm(pairs[0], pairs[1], 0x5410), __byte_perm(pairs[2], pairs[3], 0x5410)});
      }
      if (to + 8 < C::kStored) {
        store_columns(
            row, to + 8,
            {__byte_perm(pairs[0], pairs[1], 0x7632), __byte_perm(pairs[2], pairs[3], 0x7632)});
      }
    }
  }

  // 8 columns of a row, from column `first` on.
  template <int kCount>
  __device__ __forceinline__ void store_columns(OutputBits* row, int first,
                                                const unsigned (&words)[kCount]) {
    static_assert(kCount == 2 * sizeof(OutputBits), "8 columns");
    OutputBits* const to = row + first * C::kOutputColumn;
    if constexpr (C::kAligned && kCount == 2) {
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    } else if constexpr (C::kAligned) {
      *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
      constexpr int kOfWord = 8 / kCount, kBits = 32 / kOfWord;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        to[i * C::kOutputColumn] = (OutputBits)(words[i / kOfWord] >> i % kOfWord * kBits);
      }
    }
  }
};

}  // namespace kernels
