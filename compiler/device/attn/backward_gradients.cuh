// Threads of the backward kernel that compute.
#pragma once

#include "attn/backward_stages.cuh"
#include "attn/backward_tensors.cuh"
#include "attn/division.cuh"
#include "attn/exchange.cuh"
#include "attn/learned_parts.cuh"
#include "attn/places.cuh"
#include "attn/reals.cuh"
#include "attn/tile_runs.cuh"
#include "attn/transposed.cuh"

namespace kernels {

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

}  // namespace kernels
