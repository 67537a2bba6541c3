// Backward attention over few keys, for every GPU since compute capability 8.0: all keys of a head
// are one block, so that one launch makes all gradients, in a fixed order.
//
// As the backward by warps (mma_backward.cuh), whose products and layers it has. Blocks of threads
// have as many heads of keys each, one after another, and copy what the next step needs while they
// compute this one:
//
//   copies     K V Q0 dO0 o0 | K V Q1 dO1 o1                 | K V Q2 dO2 o2           | ..
//   products                 |       S0 dP0 dV | dK  dQ0     | ..
//   threads                  | delta0   P0 dS0 |     stores  |
//
// Deltas are made of rows that are in shared memory, and dQ has all keys when it is made, so it is
// stored as it is.
//
// Warps meet three times in a step: when its rows are there, and none reads the stage that is
// copied to next; when all deltas are in shared memory; and when all of dS^T is. With one
// stage they meet once more before it is copied to again.
//
//   mma_short_steps           which heads and rows a block of threads has, and in which order
//   mma_short_thread          what a thread knows of its step
//   mma_short_table           a table that scores of all batches read
//   mma_short_deltas          deltas
//   mma_short_queries         dQ
#pragma once

#include "attn/mma_backward.cuh"
#include "attn/mma_short_deltas.cuh"
#include "attn/mma_short_queries.cuh"
#include "attn/mma_short_steps.cuh"
#include "attn/mma_short_table.cuh"
#include "attn/mma_short_thread.cuh"

namespace kernels {

template <class C, class E>
struct LayersOfShort {
  using Thread = ThreadOfShort<ThreadOfStrip<BackwardThread<C, E>>>;
  using Learned = typename BackwardLayers<ProductsOfStripOfKeys<Thread>>::Learned;
  using Stored = StoredKeys<QueriesOfWarps<DeltasOfRows<Learned>>>;
};

// A thread of a block.
template <class C, class E>
struct ShortGradients : LayersOfShort<C, E>::Stored {
  using Base = typename LayersOfShort<C, E>::Stored;
  using S = typename Base::S;
  using Base::stages, Base::tensors, Base::expressions, Base::steps, Base::key, Base::key_stage,
      Base::now, Base::dk, Base::dv, Base::lane, Base::strip, Base::warp_of_block, Base::rows_of,
      Base::kKeyOutputs, Base::kValueOutputs;

  const CopiesOfBackward<C, E> copies;
  const OrderOfSteps<C, E> order;
  ValuesOfRow row;  // of this thread, in the next step
  TableOfHead<C> table;

  __device__ __forceinline__ ShortGradients(const S& stages_, const BackwardTensors& tensors_,
                                            const E& expressions_)
      : Base(stages_, tensors_, expressions_, (int)threadIdx.x / 128),
        copies{stages_, tensors_, expressions_},
        order{expressions_},
        table{stages_, tensors_} {}

  __device__ __forceinline__ void run() {
    now = order.first();
    if (order.is_over(now)) return;
    key = strip() * 16 + lane() / 4;
    this->begin_deltas();
    this->begin_sums();
    copies.copy_keys_of(now.unit, 0, 0);
    copy_rows(now, 0);
    draw_first();
    while (!order.is_over(now)) step();
  }

 private:
  __device__ __forceinline__ void step() {
    const int n = S::stage_of(steps);
    const StepOfUnit next = order.next(now);
    const bool has_next = !order.is_over(next);
    wait_for_copies<0>();
    this->store_values(n, row);
    if constexpr (C::kTable) table.hold(now.head);
    if (E::kRandom && has_next) write_words(steps + 1, next);
    __syncthreads();
    if (S::kStages > 1 && has_next) copy(next);
    if (E::kRandom && has_next) draw(steps + 1);
    if (now.is_first) begin_keys();
    make_slopes(n);
    __syncthreads();
    add_products(n);
    if (order.is_last(now, next)) store_keys();
    if (!has_next || next.head % C::kHeads != now.head % C::kHeads)
      this->add_summed(rows_of(steps));
    if (S::kStages == 1 && has_next) {
      __syncthreads();
      copy(next);
    }
    if (next.unit != now.unit) key_stage ^= S::kStages - 1;
    now = next;
    ++steps;
  }

  // Makes dS^T of the step, and what it and weights add to.
  __device__ __forceinline__ void make_slopes(int n) {
    this->make_deltas(n);
    this->multiply_keys(n);
    this->weigh(n);
    if constexpr (S::kStoresWeights) this->store_weights();
    this->multiply_gradients(n);
    __syncthreads();
    this->differentiate(n);
    this->learn();
    if constexpr (!S::kStoresWeights) this->add_values(n);
  }
  __device__ __forceinline__ void add_products(int n) {
    if constexpr (S::kStoresWeights) this->add_values(n);
    this->add_keys(n);
    this->store_queries();
  }

  __device__ __forceinline__ void begin_keys() {
#pragma unroll
    for (int i = 0; i < kKeyOutputs; ++i) dk[i] = 0;
#pragma unroll
    for (int i = 0; i < kValueOutputs; ++i) dv[i] = 0;
  }
  __device__ __forceinline__ void store_keys() const {
    this->store_dv(now.unit);
    this->store_dk(now.unit);
  }

  // What the next step needs.
  __device__ __forceinline__ void copy(const StepOfUnit& next) {
    if (next.is_first) copies.copy_keys_of(next.unit, 0, key_stage ^ (S::kStages - 1));
    copy_rows(next, S::stage_of(steps + 1));
  }
  __device__ __forceinline__ void copy_rows(const StepOfUnit& of, int stage) {
    copies.copy_queries_of(of.head, of.row, stage);
    copies.copy_gradients_of(of.head, of.row, stage);
    if constexpr (!kPointwise<E>) copies.copy_outputs_of(of.head, of.row, stage);
    commit_copies();
    row = this->load_values(of);
  }

  // What random dropout keeps of a step, whose words are there.
  __device__ __forceinline__ void draw(unsigned step) const {
    if constexpr (E::kRandom) KeptOfWarp<C, E>{stages, expressions, warp_of_block()}.draw(step);
  }
  __device__ __forceinline__ void draw_first() const {
    if constexpr (E::kRandom) {
      write_words(0, now);
      __syncthreads();
      draw(0);
    }
  }
  __device__ __forceinline__ void write_words(unsigned step, const StepOfUnit& of) const {
    if (threadIdx.x != 0) return;
    store_shared(stages.step_words(step), of.row);
    store_shared(stages.step_words(step) + 4, of.head);
    store_shared(stages.step_words(step) + 12, 1);
  }
};

// The kernel, for S::kThreads threads, and as many blocks of them as run at the same time.
template <class C, class E>
ATTN_INLINE void short_backward(const BackwardTensors& tensors, const E& expressions) {
  const BackwardStages<C> stages{(shared_address(shared_memory()) + 127) & ~127u};
  write_random_key<C>(stages, expressions);
  // The block of keys, of sums of heads (LearnedElements).
  if (threadIdx.x == 0) store_shared(stages.item_words() + 4, 0);
  __syncthreads();
  ShortGradients<C, E>(stages, tensors, expressions).run();
}

}  // namespace kernels
