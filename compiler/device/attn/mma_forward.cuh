// Forward attention over lists of key blocks, for every GPU since compute capability 8.0.
//
// All threads of a block copy, and all compute. A warp has kStrips strips of 16 rows of a tile of
// queries, 64 rows apart, so that what it reads of keys and values serves 32 rows where registers
// suffice. A block of threads has one tile, or one part of its keys.
//
//   copies      Q K0 V0 | K1 V1            | K2 V2            | ..      into stages, in turns
//   products            | S0       O+=P0 V0| S1       O+=P1 V1| ..
//   softmax             |    P0            |    P1            |
//
// Warps meet once for each block of keys: then all have copied what they compute next, and none
// reads the stage any more that is copied to next. With one stage of keys and one of values they
// meet twice. Kernels are given the same three classes as
// those of forward.cuh, and share all that follows from scores (forward_layers.cuh), tiles, and
// blocks of keys (forward_items.cuh): a warp's rows are in its registers as those of a warp group
// are. Shared memory has the same stages (forward_stages.cuh), but no barriers.
//
//   mma            products of warps, matrices in shared memory, groups of copies
//   mma_rows       how rows are in memory: of any stride, of 8 bits that are widened
//   mma_copies     rows of queries, keys and values: of batches, packed sequences and pages
//   mma_products   scores, and weighed values
#pragma once

#include "attn/forward_columns.cuh"
#include "attn/forward_defaults.cuh"
#include "attn/forward_layers.cuh"
#include "attn/forward_token_scales.cuh"
#include "attn/forward_values.cuh"
#include "attn/mma_copies.cuh"
#include "attn/mma_products.cuh"

namespace kernels {

template <class C, class E>
struct LayersOfStrip {
  using Thread = ForwardStatistics<ForwardColumns<ForwardThread<C, E, false>>>;
  using Tiles = typename LayersOfScores<C, E, PackedWeights<ProductsOfStrip<Thread>>>::Tiles;
};

// A strip of rows: its part of a block of keys, and of a tile.
template <class C, class E>
struct StripOfRows : LayersOfStrip<C, E>::Tiles {
  using Base = typename LayersOfStrip<C, E>::Tiles;
  using Base::Base;
  using Base::tile_words, Base::maximum, Base::sum, Base::kept, Base::o, Base::p, Base::kOutputs;

  __device__ __forceinline__ void begin(const unsigned (&words)[2]) {
    tile_words[0] = words[0], tile_words[1] = words[1];
    this->begin_rows();
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] = 0;
  }
  // `stage`: of the keys, where their scales are (kTokenScales).
  __device__ __forceinline__ void weigh(int stage = 0) {
    float factor[2] = {1, 1};
    const unsigned scales = this->stages.scales(stage);
    if constexpr (C::kTokenScales) scale_columns(this->s, scales, this->first_column);
    const bool moved = this->weigh_scores(factor);
    if constexpr (C::kTokenScales)
      scale_columns(this->s, scales + 4 * C::kKeys, this->first_column);
    this->rescale(moved, factor);
    this->pack(p);
    if constexpr (E::kRandom) this->drop_at_random(p);
  }
  __device__ __forceinline__ void end(const unsigned (&words)[2]) {
    const auto at = this->rows_of(words);
    typename Base::Ahead ahead;
    this->read_ahead(at, ahead);
    this->finish(at, {maximum, sum, kept}, ahead);
  }
};

// A thread: of each of its strips it has two rows.
template <class C, class E, class Copies>
struct ThreadOfWarp {
  using Strip = StripOfRows<C, E>;
  using Rows = Strips<Strip, C::kStrips>;
  static constexpr int kStages = C::kStages;

  Copies& copies;
  Rows rows;
  const ProductsOfWarp<C, Rows> products;

  __device__ __forceinline__ ThreadOfWarp(Copies& copies_)
      : copies(copies_),
        rows(threadIdx.x / 128, copies_.stages, copies_.tensors, copies_.expressions),
        products(copies_.stages) {}

  __device__ __forceinline__ void run() {
    copies.begin();
    copies.copy_queries();
    unsigned words[2];
    copies.tell_tile(words);
    rows.each([&](Strip& strip) { strip.begin(words); });
    if constexpr (kStages == 1)
      run_in_one_stage();
    else
      run_in_stages();
    copies.tell_tile(words);
    rows.each([&](Strip& strip) { strip.end(words); });
  }

 private:
  // Blocks of keys are copied while others are computed.
  __device__ __forceinline__ void run_in_stages() {
    unsigned words[kStages - 1];  // of the blocks that are on their way
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) {
      words[i] = copies.copy_keys(i);
      copies.copy_values(i);
      commit_copies();
    }
    bool first = true;
#pragma unroll 1
    for (int stage = 0; words[0] != kEndOfStream; first = false) {
      wait_for_copies<kStages - 2>();
      __syncthreads();
      begin_block(words[0], first);
#pragma unroll
      for (int i = 0; i < kStages - 2; ++i) words[i] = words[i + 1];
      const int empty = stage == 0 ? kStages - 1 : stage - 1;
      words[kStages - 2] = copies.copy_keys(empty);
      copies.copy_values(empty);
      commit_copies();
      products.multiply_keys(rows, stage);
      rows.each([stage](Strip& strip) { strip.weigh(stage); });
      products.weigh_values(rows, stage);
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }
  }

  // Values are copied while scores are computed, and the next keys while these are weighed.
  __device__ __forceinline__ void run_in_one_stage() {
    unsigned word = copies.copy_keys(0);
    commit_copies();
#pragma unroll 1
    for (bool first = true; word != kEndOfStream; first = false) {
      wait_for_copies<0>();
      __syncthreads();
      begin_block(word, first);
      copies.copy_values(0);
      commit_copies();
      products.multiply_keys(rows, 0);
      rows.each([](Strip& strip) { strip.weigh(); });
      wait_for_copies<0>();
      __syncthreads();
      word = copies.copy_keys(0);
      commit_copies();
      products.weigh_values(rows, 0);
    }
  }

  __device__ __forceinline__ void begin_block(unsigned word, bool first) {
    rows.each([&](Strip& strip) {
      strip.block = word;
      if (first) strip.hold_queries();
    });
  }
};

// The kernel, for 128 kGroups / kStrips threads: as many blocks of them as there are items.
template <class C, class E, class L>
ATTN_INLINE void forward_of_warps(const ForwardTensors& tensors, const E& expressions,
                                  const L& lists) {
  using Copies = typename LayersOfCopies<C, E, L>::Copies;
  const Stages<C> stages{(shared_address(shared_memory()) + 127) & ~127u};
  Copies copies{stages, tensors, expressions, lists};
  ThreadOfWarp<C, E, Copies>(copies).run();
}

}  // namespace kernels
