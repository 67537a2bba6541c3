// Copies of the backward by all threads of a block: keys and values of its item, rows of
// q and dO as they are needed. Rows that are not there become zeros, also those past the length of
// a batch. And the thread that finds items and steps.
#pragma once

#include "attn/backward_order.cuh"
#include "attn/mma_backward_stages.cuh"
#include "attn/mma_panels.cuh"
#include "attn/places.cuh"
#include "attn/which.cuh"

namespace kernels {

// One thread of the block: it writes words of items and steps, which are read after the block's
// threads have met.
template <class C, class E, class L>
struct RowWalker : StepsOfRows<C, E, L> {
  using Base = StepsOfRows<C, E, L>;
  using Base::get, Base::parts, Base::with_item, Base::has_no_keys, Base::first_step,
      Base::next_step;
  using Base::kBlock, Base::kStepsLeft, Base::kTurn, Base::kUnit;
  using Base::stages, Base::tensors, Base::steps;

  // Begins with the next item: writes its words, and those of its first two steps, from `steps` on.
  // If there is none, the words say that.
  __device__ __forceinline__ void begin() {
    store_shared(stages.item_words(), kEndOfStream);
    bool begun = false;
    while (!begun) {
      const int n = atomicAdd(tensors.counter, 1);
      if (n >= C::kItems + parts()) return;
      with_item(n, [&](const Part& of, const Tile& tile) {
        if (has_no_keys(tile, of.unit / C::kKeyHeads)) return;
        begin(of, tile);
        begun = true;
      });
    }
  }

  // Writes the words of the step behind that of `steps`, which becomes this one.
  __device__ __forceinline__ void go_on() {
    unsigned rows = load_shared(stages.step_words(steps));
    int head = (int)load_shared(stages.step_words(steps) + 4);
    next_step(rows, head);
    ++steps;
    write_step(rows, head);
  }

 private:
  __device__ __forceinline__ void begin(const Part& of, const Tile& tile) {
    int head;
    const unsigned rows = first_step(of, tile, head);
    store_shared(stages.item_words(), kDivides<C> ? get(kUnit) : of.unit);
    store_shared(stages.item_words() + 4, get(kBlock));
    store_shared(stages.item_words() + 8, get(kStepsLeft));
    write_step(rows, head);
    go_on();
  }

  __device__ __forceinline__ void write_step(unsigned rows, int head) const {
    store_shared(stages.step_words(steps), rows);
    store_shared(stages.step_words(steps) + 4, head);
    if constexpr (C::kOrdered) store_shared(stages.step_words(steps) + 8, get(kTurn));
    if constexpr (C::kOrdered || C::kRandom)
      store_shared(stages.step_words(steps) + 12, get(kBlock) + 1);
  }
};

// What threads copy: rows where their tensors have them, or those that were widened (kNarrow).
template <class C, class E>
struct CopiesOfBackward {
  using S = BackwardStages<C>;
  template <class Own, class Widened>
  using Either = typename Which<C::kNarrow, Widened, Own>::Type;
  using Queries = Either<typename C::Queries, typename C::QueryRows>;
  using Keys = Either<typename C::Keys, typename C::KeyRows>;
  using Values = Either<typename C::Values, typename C::ValueRows>;
  using Gradients = Either<typename C::Outputs, typename C::GradientRows>;
  // Columns that products read: with kNarrow all, since magnitudes of all sums are looked at.
  static constexpr int kTaken = C::kNarrow ? C::kDepth : (C::Queries::kColumns + 15) / 16 * 16;
  static constexpr int kStored = C::kNarrow ? C::kWidth : (C::Outputs::kColumns + 15) / 16 * 16;

  const S stages;
  const BackwardTensors& tensors;
  const E& expressions;

  // Those of the item whose first step it is.
  __device__ __forceinline__ void copy_keys(unsigned step) const {
    copy_keys_of(head_of(step) / C::kHeadsOfKey,
                 (int)load_shared(stages.item_words() + 4) * S::kKeys, 0);
  }
  // Those of a unit, from the key `first` on, to a stage.
  __device__ __forceinline__ void copy_keys_of(int unit, int first, int stage) const {
    const int b = unit / C::kKeyHeads, head = unit % C::kKeyHeads;
    const int left = min(expressions.used_keys(b), C::kColumns) - first;
    copy<Keys, S::kKeys, kTaken, C::kDepthPanel>(stages.keys(stage), tensors.key_rows,
                                                 tensors.column_starts, b, head, first, left);
    copy<Values, S::kKeys, kStored, C::kWidthPanel>(stages.values(stage), tensors.value_rows,
                                                    tensors.column_starts, b, head, first, left);
  }

  __device__ __forceinline__ void copy_queries(unsigned step) const {
    copy_queries_of(head_of(step), first_of(step), S::stage_of(step));
  }
  __device__ __forceinline__ void copy_queries_of(int head, int first, int stage) const {
    copy_rows_of<Queries, kTaken, C::kDepthPanel>(head, first, stages.query(stage),
                                                  tensors.query_rows);
  }
  __device__ __forceinline__ void copy_gradients_of(int head, int first, int stage) const {
    copy_rows_of<Gradients, kStored, C::kWidthPanel>(head, first, stages.gradient(stage),
                                                     tensors.gradient_rows);
  }
  // Rows of o, which has the places of its gradient.
  __device__ __forceinline__ void copy_outputs_of(int head, int first, int stage) const {
    copy_rows_of<typename C::Outputs, kStored, C::kWidthPanel>(head, first, stages.output(stage),
                                                               tensors.output_rows);
  }
  // The gradients of o, and what the rows have besides.
  __device__ __forceinline__ void copy_gradients(unsigned step) const {
    const int n = S::stage_of(step);
    copy_gradients_of(head_of(step), first_of(step), n);
    constexpr int kVectors = S::kRowBytes / 16;
    if (threadIdx.x >= 2 * kVectors) return;
    const bool second = threadIdx.x >= kVectors;
    const int vector = threadIdx.x % kVectors;
    const float* const from = (second ? tensors.deltas : tensors.exponents) +
                              (unsigned)(head_of(step) * C::kPaddedRows + first_of(step));
    copy_vector((second ? stages.deltas(n) : stages.exponents(n)) + vector * 16, from + vector * 4,
                true);
  }

 private:
  __device__ __forceinline__ int head_of(unsigned step) const {
    return (int)load_shared(stages.step_words(step) + 4);
  }
  __device__ __forceinline__ int first_of(unsigned step) const {
    return (int)(load_shared(stages.step_words(step)) & kKeyBits);
  }

  template <class P, int kColumns, int kPanel>
  __device__ __forceinline__ void copy_rows_of(int unit, int first, unsigned to,
                                               const unsigned short* tensor) const {
    const int b = unit / C::kHeads, head = unit % C::kHeads;
    const int left = min(expressions.used_queries(b), C::kRows) - first;
    copy<P, C::kBlockRows, kColumns, kPanel>(to, tensor, tensors.row_starts, b, head, first, left);
  }
  // Copies kRows rows from `first` on, of which there are `left`.
  template <class P, int kRows, int kColumns, int kPanel>
  static __device__ __forceinline__ void copy(unsigned to, const unsigned short* tensor,
                                              const int* starts, int b, int head, int first,
                                              int left) {
    using Format = RowFormat<typename C::Float, typename C::Float, P::kColumn, P::kStrides>;
    const AdjacentRowsOfBlock<Format> rows{tensor + P::place(starts, b, head, first), left,
                                           P::kRowStride};
    copy_rows<S::kThreads, kRows, P::kColumns, kColumns, kPanel>(to, rows);
  }
};

}  // namespace kernels
