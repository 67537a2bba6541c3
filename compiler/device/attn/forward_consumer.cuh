// Threads of the forward kernel that compute: their layers, each of which uses those below it.
#pragma once

#include "attn/forward_ahead.cuh"
#include "attn/forward_columns.cuh"
#include "attn/forward_converted_queries.cuh"
#include "attn/forward_handover.cuh"
#include "attn/forward_layers.cuh"
#include "attn/forward_products.cuh"
#include "attn/forward_steps.cuh"
#include "attn/forward_token_scales.cuh"
#include "attn/forward_values.cuh"
#include "attn/which.cuh"

namespace kernels {

// Layers that make products, and those that steps take them by.
template <class C, class E, bool kSecond>
struct ForwardLayers {
  using Thread = ForwardThread<C, E, kSecond>;
  template <bool kFirst, class A, class B>
  using Either = typename Which<kFirst, A, B>::Type;

  static constexpr bool kAhead = kStepsAhead<C> && !kSecond;
  using Plain = ForwardProducts<ForwardStatistics<ForwardColumns<Thread>>>;
  using Products = Either<kAhead, AheadProducts<Plain>, Plain>;
  using Values =
      PackedWeights<Either<Thread::kOf8Bits, ValuesOf8Bits<Products>, ValuesOf16Bits<Products>>>;
  using Tiles = Handover<typename LayersOfScores<C, E, Values>::Tiles>;
  using Scaled = Either<C::kTokenScales, TokenScales<Tiles>, NoTokenScales<Tiles>>;
  using Begun =
      ForwardSteps<Either<C::kConvertsQueries, ConvertedQueries<Scaled>, QueriesAsTheyAre<Scaled>>>;
  using Steps = Either<kAhead, AheadSteps<Begun>,
                       Either<Thread::kFollows, FollowingSteps<Begun>, PlainSteps<Begun>>>;
};

// A thread of a warp group. kSecond: it has the columns of o from kShare on, and no scores.
template <class C, class E, bool kSecond = false>
struct Consumer : ForwardLayers<C, E, kSecond>::Steps {
  using Base = typename ForwardLayers<C, E, kSecond>::Steps;
  using Base::Base;
  using Base::fetch, Base::release, Base::wait_for_values, Base::weigh_values, Base::rows_of,
      Base::finished_rows_of, Base::finish, Base::take_over, Base::take_products, Base::read_ahead;
  using Base::stages, Base::query, Base::key, Base::value, Base::group, Base::tile_words,
      Base::block, Base::adds, Base::maximum, Base::sum, Base::kept, Base::o, Base::kOutputs;

  __device__ __forceinline__ void run() {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] = 0;
    if (C::kTurns && group == C::kGroups - 1) arrive_named(1, 256);
    fetch(0);
    if (block == kEndOfStream) return;  // a schedule has nothing for this block of threads
    while (kSpares && has_no_rows()) pass();
    if (kSpares && block == kEndOfStream) return;
    this->template step<false>();
    while (block != kEndOfStream) {
      if (kSpares && has_no_rows()) {
        end_tile();
        while (has_no_rows()) pass();
        if (block == kEndOfStream) return;
        this->template step<false>();
      } else {
        this->template step<true>();
      }
    }
    end_tile();
  }

  // The last values of a tile, after which none is begun.
  __device__ __forceinline__ void end_tile() {
    wait_for_values();
    weigh_values();
    take_products();
    const auto at = finished_rows_of(tile_words);
    typename Base::Ahead ahead;
    read_ahead(at, ahead);
    finish(at, {maximum, sum, kept}, ahead);
  }

  static constexpr bool kSpares = kSparesWarpGroups<C, typename Base::E>;
  __device__ bool has_no_rows() const {
    return group > 0 && block != kEndOfStream && (block & kFewRows);
  }
  // Leaves a block to the other warp groups. Its values are waited for: the stage may have others
  // still, which these have not read.
  __device__ __forceinline__ void pass() {
    this->take_turn();
    this->give_turn();
    if constexpr (!C::kValuesOfKeys) release(stages.key_full(key.stage));
    key.next();
    if (block & kLastOfTile) {
      release(stages.query_full(query.stage));
      query.next();
    }
    wait_for_values();
    release(stages.value_full(value.stage));
    value.next();
    fetch(0);
  }

  // Weighs, in the second warp group, what the first hands over, block after block.
  __device__ __forceinline__ void weigh() {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] = 0;
    for (;;) {
      float factor[2];
      take_over(factor);
      if (block == kEndOfStream) return;
      if (block & kScalesOutputs) this->scale_outputs(factor);
      adds = !(block & kFirstOfTile);
      wait_for_values();
      weigh_values();
      take_products();
      if (!(block & kLastOfTile)) continue;
      const auto at = rows_of(tile_words);
      typename Base::Ahead ahead;
      read_ahead(at, ahead);
      finish(at, {maximum, sum, kept}, ahead);
    }
  }
};

}  // namespace kernels
