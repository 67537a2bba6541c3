// Copies of keys, and of rows of q and dO, by the backward; with tails past the lengths.
#pragma once

#include "attn/backward_copier.cuh"
#include "attn/lengths.cuh"
#include "attn/packed_rows.cuh"
#include "attn/places.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

// Copies each into the next stage, once that is empty.
template <class Base>
struct RowCopies : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using ListWord = typename Base::ListWord;
  using Base::stages, Base::tensors, Base::steps, Base::kFirstStep, Base::set, Base::get,
      Base::last_head, Base::queries_of, Base::keys_of, Base::kBlock, Base::kFirstKey,
      Base::kStepsLeft, Base::kTurn, Base::kUnit, Base::kTail;

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
        stages.query(n), *tensors.q, tensors.row_starts, full, head, rows & kKeyBits,
        S::kRowBytes + S::kTableBytes, length);
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
        stages.gradient(n), *tensors.d_o, tensors.row_starts, full, head, rows & kKeyBits,
        S::kRowBytes, length);
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
        stages.keys(), *tensors.k, tensors.column_starts, stages.keys_full(), key_head, at, 0,
        length);
    copy_panels<typename C::Values, C::kWidth, S::kKeys, C::kKeyHeads, C::kColumns>(
        stages.values(), *tensors.v, tensors.column_starts, stages.values_full(), key_head, at, 0,
        length);
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

  // Announces so many bytes more, for the barrier that it returns. `starts`: of packed tensors.
  template <class P, int kColumns, int kRows, int kHeads, int kSize>
  __device__ unsigned copy_panels(unsigned to, const TensorMap& map, const int* starts,
                                  unsigned full, int unit, int at, int more, int length) const {
    constexpr int kPanel = kRows * 128, kBytes = kColumns * kRows * 2;
    if (has_tail<P, kRows, kSize>(at, length)) {
      full = announce_tail<kColumns / 64, kPanel>(to, full, max(length - at, 0), kBytes + more);
    } else {
      arrive_expecting(full, kBytes + more);
    }
    const int b = unit / kHeads, head = unit % kHeads;
    if constexpr (P::kPacked) {
      const int rows = PackedLengths<kSize>{starts}[b];
      const int place = PackedRows::place(at, rows), last = PackedRows::last(starts, b, rows);
      for (int panel = 0; panel < kColumns / 64; ++panel) {
        copy_box(to + panel * kPanel, map, full, panel * 64, place, head, last, PackedRows::kSteps);
      }
    } else {
      for (int panel = 0; panel < kColumns / 64; ++panel) {
        copy_box(to + panel * kPanel, map, full, panel * 64, at, head, b);
      }
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
      stages.tails().announce(n, {full, to + before, kPanelBytes - before, kPanels, kPanelBytes, 0},
                              bytes);
      set(kTail, n + 1);
      return stages.tails().barrier(n);
    }
  }
};

}  // namespace kernels
