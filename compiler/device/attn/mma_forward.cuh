// Forward attention over lists of key blocks, for every GPU since compute capability 8.0.
//
// All threads of a block copy, and all compute: kGroups times four warps, each with 16 rows of a
// tile of queries. A block of threads has one tile, or one part of its keys.
//
//   copies      Q K0 V0 | K1 V1            | K2 V2            | ..      into stages, in turns
//   products            | S0       O+=P0 V0| S1       O+=P1 V1| ..
//   softmax             |    P0            |    P1            |
//
// Warps meet once for each block of keys: then all have copied what they compute next, and none
// reads the stage any more that is copied to next. Kernels are given the same three classes as
// those of forward.cuh, and share all that follows from scores (forward_layers.cuh), tiles, and
// blocks of keys (forward_items.cuh): a warp's rows are in its registers as those of a warp group
// are. Shared memory has the same stages (forward_stages.cuh), but no barriers.
//
//   mma            products of warps, matrices in shared memory, groups of copies
//   mma_copies     rows of queries, keys and values: of batches, packed sequences and pages
//   mma_products   scores, and weighed values
#pragma once

#include "attn/forward_columns.cuh"
#include "attn/forward_defaults.cuh"
#include "attn/forward_layers.cuh"
#include "attn/forward_values.cuh"
#include "attn/mma_copies.cuh"
#include "attn/mma_products.cuh"

namespace kernels {

template <class C, class E>
struct LayersOfWarp {
  using Thread = ForwardStatistics<ForwardColumns<ForwardThread<C, E, false>>>;
  using Values = PackedWeights<ValuesOfWarp<ScoresOfWarp<Thread>>>;
  using Tiles = typename LayersOfScores<C, E, Values>::Tiles;
};

// A thread.
template <class C, class E, class Copies>
struct ThreadOfWarp : LayersOfWarp<C, E>::Tiles {
  using Base = typename LayersOfWarp<C, E>::Tiles;
  using Base::Base;
  using Base::tile_words, Base::block, Base::maximum, Base::sum, Base::kept, Base::o, Base::p,
      Base::kOutputs;
  static constexpr int kStages = C::kStages;
  static_assert(kStages > 1, "a block of keys is copied while another is computed");

  __device__ __forceinline__ void run(Copies& copies) {
    copies.begin();
    copies.copy_queries();
    unsigned words[kStages - 1];  // of the blocks that are on their way
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) {
      words[i] = copies.copy_block(i);
      commit_copies();
    }
    copies.tell_tile(tile_words);
    this->begin_rows();
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] = 0;
    bool first = true;
#pragma unroll 1
    for (int stage = 0; words[0] != kEndOfStream; first = false) {
      wait_for_copies<kStages - 2>();
      __syncthreads();
      block = words[0];
#pragma unroll
      for (int i = 0; i < kStages - 2; ++i) words[i] = words[i + 1];
      words[kStages - 2] = copies.copy_block(stage == 0 ? kStages - 1 : stage - 1);
      commit_copies();
      if (first) this->hold_queries();
      step(stage);
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }
    this->finish(this->rows_of(tile_words), {maximum, sum, kept});
  }

 private:
  // A block of keys.
  __device__ __forceinline__ void step(int stage) {
    this->multiply_keys(stage);
    float factor[2] = {1, 1};
    const bool moved = this->weigh_scores(factor);
    this->rescale(moved, factor);
    this->pack(p);
    if constexpr (E::kRandom) this->drop_at_random(p);
    this->weigh_values(stage);
  }
};

// The kernel, for 128 kGroups threads: as many blocks of them as there are items.
template <class C, class E, class L>
ATTN_INLINE void forward_of_warps(const ForwardTensors& tensors, const E& expressions,
                                  const L& lists) {
  using Copies = typename LayersOfCopies<C, E, L>::Copies;
  const Stages<C> stages{(shared_address(shared_memory()) + 1023) & ~1023u};
  Copies copies{stages, tensors, expressions, lists};
  ThreadOfWarp<C, E, Copies>(stages, tensors, expressions, threadIdx.x / 128).run(copies);
}

}  // namespace kernels
