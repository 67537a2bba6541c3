// Steps of the forward: a block of keys each.
#pragma once

#include "attn/tile_rows.cuh"
#include "attn/tile_runs.cuh"
#include "attn/wgmma.cuh"

namespace kernels {

// The beginning of a step: scores, while the values of the block before are weighed.
template <class Base>
struct ForwardSteps : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using Base::Base;
  using Base::stages, Base::query, Base::key, Base::group, Base::tile_words, Base::block, Base::s,
      Base::kFollows, Base::release, Base::begin_rows, Base::multiply_keys, Base::wait_for_values,
      Base::weigh_values;

  __device__ __forceinline__ void begin_tile() {
    wait(stages.query_full(query.stage), query.parity);
    const unsigned word = stages.query_word(query.stage);
    tile_words[0] = load_shared(word), tile_words[1] = load_shared(word + 4);
    this->convert_queries();
    begin_rows();
  }

  template <bool kWeighs>
  __device__ __forceinline__ void begin_step() {
    take_turn();
    multiply_keys();
    if (kWeighs) {
      wait_for_values();
      weigh_values();
    }
    give_turn();
    wait_for_products<kWeighs ? 1 : 0>();
    pin(s);
    if constexpr (!C::kValuesOfKeys && !C::kTokenScales) release(stages.key_full(key.stage));
    if (block & kLastOfTile) {
      release(stages.query_full(query.stage));
      query.next();
    }
  }

  __device__ __forceinline__ void take_turn() const {
    if (C::kTurns) sync_named(1 + turn(), 256);
  }
  __device__ __forceinline__ void give_turn() const {
    if (C::kTurns) arrive_named(1 + (turn() + 1) % C::kGroups, 256);
  }

  // The group, which takes no further registers for the numbers of barriers.
  __device__ __forceinline__ int turn() const { return kFollows ? unknown(group) : group; }
};

// Steps that make weights of all scores, then take the product with the values before.
template <class Base>
struct PlainSteps : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using Base::Base;
  using Base::key, Base::tile_words, Base::block, Base::adds, Base::maximum, Base::sum, Base::kept,
      Base::p, Base::s, Base::kPacksEarly, Base::kWords, Base::begin_tile, Base::begin_step,
      Base::weigh_scores, Base::rescale, Base::drop_at_random, Base::fetch, Base::pack, Base::take,
      Base::take_products, Base::finished_rows_of, Base::finish, Base::read_ahead;

  template <bool kWeighs>
  __device__ __forceinline__ void step() {
    const bool first = block & kFirstOfTile;
    const unsigned words_before[2] = {tile_words[0], tile_words[1]};
    const float maximum_before[2] = {maximum[0], maximum[1]}, sum_before[2] = {sum[0], sum[1]};
    const float kept_before[2] = {kept[0], kept[1]};
    if (first) begin_tile();
    this->template begin_step<kWeighs>();
    float factor[2] = {1, 1};
    this->scale_scores();
    const bool moved = weigh_scores(factor);
    this->scale_weights();
    key.next();
    unsigned packed[kPacksEarly ? kWords : 1];
    if constexpr (kPacksEarly) pack(packed);
    if constexpr (E::kRandom)
      drop_at_random(packed);
    else if constexpr (kPacksEarly)
      pin(packed);
    else
      pin(s);
    typename Base::Ahead ahead;
    if (kWeighs && first) read_ahead(finished_rows_of(words_before), ahead);
    fetch(sum[0] + sum[1] < 0 ? 8 : 0);
    if (kWeighs) {
      take_products();
      if (first) {
        finish(finished_rows_of(words_before), {maximum_before, sum_before, kept_before}, ahead);
      } else {
        rescale(moved, factor);
      }
    }
    adds = !first;
    if constexpr (kPacksEarly)
      take(packed);
    else
      pack(p);
  }
};

}  // namespace kernels
