// Backward attention over lists of row blocks, for every GPU since compute capability 8.0.
//
// As that of warp groups (backward.cuh), whose items, order, sums of dQ and kernels before and
// after it has: keys stay, rows stream by, and scores are transposed. All threads of a block copy,
// and all compute; one finds items and steps besides, a step ahead.
//
//   copies     K V Q0 dO0 | Q1 dO1                      | Q2 dO2                      | ..
//   products              | S0 dP0 dV | dK  dQ0         | S1 dP1 dV | dK  dQ1         | ..
//   threads               |    P0 dS0 |     adds dQ0    |    P1 dS1 |     adds dQ1    | ..
//
// Warps meet twice in a step: when its rows are there, and none reads the stage any more that is
// copied to next; and when all of dS^T is in shared memory, of which dQ takes that of all keys.
// With one stage, dO is copied while dK is made, q while dQ is, and they meet once more.
//
// A warp has 16 keys and all rows of a block: weights and dS stay in registers as operands of dV
// and dK. Where columns are many, two warps share 16 keys (kRowGroups): each has the scores of half
// of the rows, which they exchange through shared memory, and half of the columns of dK and dV.
//
// Kernels are given the three classes of backward.cuh; all that follows from scores is the same
// text (backward_layers.cuh).
//
//   mma_panels                matrices in shared memory, which all threads copy
//   mma_backward_stages       shared memory
//   mma_backward_copies       items, steps, rows
//   mma_backward_products     S^T, dP^T, dV, dK
//   mma_query_sums            dQ
#pragma once

#include "attn/backward_convert.cuh"
#include "attn/backward_defaults.cuh"
#include "attn/backward_layers.cuh"
#include "attn/backward_prepare.cuh"
#include "attn/backward_store.cuh"
#include "attn/kept_drawer.cuh"
#include "attn/learned_gradients.cuh"
#include "attn/mma_backward_copies.cuh"
#include "attn/mma_backward_products.cuh"
#include "attn/mma_query_sums.cuh"
#include "attn/scored.cuh"

namespace kernels {

template <class C, class E>
struct LayersOfKeys {
  using Thread = ThreadOfStrip<BackwardThread<C, E>>;
  using Learned = typename BackwardLayers<ProductsOfStripOfKeys<Thread>>::Learned;
  using Stored = StoredKeys<SumsOfWarps<Learned>>;
};

// A share of a warp in what random dropout keeps of a step.
template <class C, class E>
struct KeptOfWarp : DrawerOfStep<C, E> {
  using Base = DrawerOfStep<C, E>;
  __device__ __forceinline__ void draw(unsigned step) const {
    const unsigned words = this->stages.random_words();
    Base::draw(step, make_uint2(load_shared(words), load_shared(words + 4)));
  }
};

// A thread of a block.
template <class C, class E, class L>
struct GradientsOfWarp : LayersOfKeys<C, E>::Stored {
  using Base = typename LayersOfKeys<C, E>::Stored;
  using S = typename Base::S;
  using Base::stages, Base::tensors, Base::expressions, Base::steps, Base::key, Base::dk, Base::dv,
      Base::lane, Base::strip, Base::warp_of_block, Base::shared_word, Base::kKeyOutputs,
      Base::kValueOutputs;

  const CopiesOfBackward<C, E> copies;
  RowWalker<C, E, L> walker;  // of the first thread

  __device__ __forceinline__ GradientsOfWarp(const S& stages_, const BackwardTensors& tensors_,
                                             const E& expressions_, const L& lists)
      : Base(stages_, tensors_, expressions_, (int)threadIdx.x / 128),
        copies{stages_, tensors_, expressions_},
        walker{stages_, tensors_, expressions_, lists} {}

  __device__ __forceinline__ void run() {
    while (begin_item()) {
      int left = (int)shared_word(stages.item_words() + 8);
#pragma unroll 1
      for (bool first = true; left > 0; --left, first = false) step(left, first);
      finish_item();
    }
    if constexpr (C::kNarrow) this->store_largest_slope();
  }

 private:
  // False if there is none.
  __device__ __forceinline__ bool begin_item() {
    __syncthreads();  // the words of the one before have been read, and its keys
    if (threadIdx.x == 0) walker.begin();
    __syncthreads();
    if (shared_word(stages.item_words()) == kEndOfStream) return false;
    copies.copy_keys(steps);
    copies.copy_queries(steps);
    copies.copy_gradients(steps);
    commit_copies();
    draw(steps);
    key = shared_word(stages.item_words() + 4) * S::kKeys + strip() * 16 + lane() / 4;
#pragma unroll
    for (int i = 0; i < kKeyOutputs; ++i) dk[i] = 0;
#pragma unroll
    for (int i = 0; i < kValueOutputs; ++i) dv[i] = 0;
    return true;
  }

  __device__ __forceinline__ void finish_item() {
    const int unit = shared_word(stages.item_words());
    this->store_dv(unit);
    this->store_dk(unit);
    if (threadIdx.x == 0) walker.steps = steps;
  }

  // Steps that are left count this one. `first`: of the item.
  __device__ __forceinline__ void step(int left, bool first) {
    const int n = S::stage_of(steps);
    const bool has_next = left > 1;
    wait_for_copies<0>();
    __syncthreads();
    if (S::kStages > 1 && has_next) {
      copies.copy_queries(steps + 1);
      copies.copy_gradients(steps + 1);
    }
    commit_copies();
    if (has_next) draw(steps + 1);
    if (threadIdx.x == 0 && left > 2) walker.go_on();
    __syncwarp();
    if (first) this->hold_keys();
    this->multiply_keys(n);
    this->weigh(n);
    if constexpr (S::kStoresWeights) this->store_weights();
    this->multiply_gradients(n);
    this->differentiate(n);
    this->learn();
    if constexpr (!S::kStoresWeights) this->add_values(n);
    __syncthreads();
    if constexpr (S::kStoresWeights) {
      this->add_values(n);
      if (S::kStages == 1) __syncthreads();
    }
    if (S::kStages == 1 && has_next) copies.copy_gradients(steps + 1);
    this->add_keys(n);
    if (S::kStages == 1 && has_next) {
      __syncthreads();
      copies.copy_queries(steps + 1);
    }
    commit_copies();
    this->add_queries();
    ++steps;
  }

  __device__ __forceinline__ void draw(unsigned step) const {
    if constexpr (E::kRandom) KeptOfWarp<C, E>{stages, expressions, warp_of_block()}.draw(step);
  }
};

// Writes the key of random dropout, which threads read when they have met.
template <class C, class E>
ATTN_INLINE void write_random_key(const BackwardStages<C>& stages, const E& expressions) {
  if constexpr (E::kRandom) {
    if (threadIdx.x != 0) return;
    const uint2 random_key = dropout_key(*expressions.seed(), *expressions.offset());
    store_shared(stages.random_words(), random_key.x);
    store_shared(stages.random_words() + 4, random_key.y);
  }
}

// The kernel, for S::kThreads threads.
template <class C, class E, class L>
ATTN_INLINE void backward_of_warps(const BackwardTensors& tensors, const E& expressions,
                                   const L& lists) {
  const BackwardStages<C> stages{(shared_address(shared_memory()) + 127) & ~127u};
  if (C::kShares && threadIdx.x == 0) {
    store_shared(stages.power_word(), reinterpret_cast<const Largest*>(tensors.words)->power());
  }
  write_random_key<C>(stages, expressions);
  GradientsOfWarp<C, E, L>(stages, tensors, expressions, lists).run();
}

}  // namespace kernels
