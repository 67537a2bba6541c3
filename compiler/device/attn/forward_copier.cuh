// A thread of the forward kernel that copies: what it knows. What it does with that are the layers
// below; forward_producer.cuh has their order.
#pragma once

#include "attn/block_loader.cuh"
#include "attn/forward_stages.cuh"
#include "attn/forward_tensors.cuh"
#include "attn/tile_runs.cuh"
#include "attn/turns.cuh"

namespace kernels {

// One thread, or a warp if keys or values are in pages, or a warp group if it copies rows. Then all
// threads know the same, and the first does what is done once. Warps but the first take part in
// what is copied by rows alone: a wait for another stage might miss a phase.
template <class C_, class E_, class L_>
struct ForwardCopier {
  using C = C_;
  using E = E_;
  using L = L_;
  static constexpr int kLanes = C::kKeyPage > 0 || C::kValuePage > 0 ? 32 : 1;
  static constexpr bool kGathers = C::kGatherKeys || C::kGatherValues;
  static constexpr int kThreads =
      kGathers ? kGatherThreads * (C::kWideners > 1 ? C::kWideners : 1) : kLanes;
  static constexpr int kPastAllKeys = (C::kColumns + 15) / 16 * 16;
  using S = Stages<C>;
  // Whether another warp clears values past the length: if none is left, the one that copies does.
  static constexpr bool kClearsLater = S::kClears && !kGathers;
  static constexpr bool kSparesGroups = kSparesWarpGroups<C, E>;
  using KeyLoader = BlockLoader<C, KeySide<C>, kLanes>;
  using ValueLoader = BlockLoader<C, ValueSide<C>, kLanes>;
  const S stages;
  const ForwardTensors& tensors;
  const E& expressions;
  const L& lists;
  Turn<C::kQueries> query{0, 1};
  Turn<C::kStages> key{0, 1}, value{0, 1};
  Turn<C::kTables> table{0, 1};
  Turn<2> item_word{};
  // Values that are still to come, of a batch with value_keys of them.
  static constexpr int kNoKey = -1;  // no place of packed rows is that, whatever their lengths
  int value_key = kNoKey, value_head = 0, value_batch = 0, value_keys = 0;
  int tails = 0;  // of values, so far

  static __device__ bool is_first() { return kThreads == 1 || threadIdx.x == 0; }
  static __device__ bool takes_part(bool gathers) {
    return !kGathers || gathers || threadIdx.x < 32;
  }

  // What the first thread knows.
  __device__ int known_to_all(int x) {
    if constexpr (!kGathers) {
      return kLanes == 1 ? x : __shfl_sync(~0u, x, 0);
    } else {
      const unsigned word = stages.item_word(item_word.stage);
      if (is_first()) store_shared(word, x);
      sync_named(15, kThreads);
      item_word.next();
      return (int)load_shared(word);
    }
  }
};

}  // namespace kernels
