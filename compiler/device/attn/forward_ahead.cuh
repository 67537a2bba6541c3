// Steps of the forward whose scores are computed a block ahead, where one warp group has all
// scores: what it does is what a block of keys takes. Another may have half of the columns of o
// (kShares).
//
//   products     S1 ..  ..  O += P0 V0 | S2 ..  ..  O += P1 V1 | ..
//   the group    P0 from S0            | P1 from S1            | ..
//
// The tensor cores compute the next scores while weights are made of these. They take products in
// the order in which they are issued, and hold a number of them; whoever issues more waits. So the
// product with the next keys is issued in three parts, among what makes the weights: before the
// scores are read, before the exponentials, and after them.
//
// A step hands its weights over, then waits for both products: the assembler serializes products of
// which one or the other is on its way all the time. Little is lost, as the product with the values
// would be issued no earlier.
//
// A block's keys are needed a step earlier than PlainSteps needs them: of keys that hold their
// values (kValuesOfKeys) three stages are in use at once.
#pragma once

#include "attn/forward_handover.cuh"
#include "attn/tile_rows.cuh"
#include "attn/tile_runs.cuh"
#include "attn/wgmma.cuh"

namespace kernels {

// Scales of each key are in a stage that would have to stay for longer.
template <class C>
constexpr bool kStepsAhead = C::kShares > 1 || (C::kWidens && C::kGroups == 1 && !C::kTokenScales);

// Products with the keys of the block after this one, which `key` is at.
template <class Base>
struct AheadProducts : Base {
  using Base::Base;
  using Base::s, Base::kScores, Base::kStepsOfKeys;

  float next[kScores];

  // The first part is the largest, but no more than wait beside values that are weighed: about 15
  // products with 32 keys on an H200.
  template <int kPart>
  __device__ __forceinline__ void multiply_part() {
    constexpr int kFirst = kStepsOfKeys * 2 / 5, kSecond = (kFirst + kStepsOfKeys) / 2;
    constexpr int kBounds[] = {0, kFirst, kSecond, kStepsOfKeys};
    this->template multiply_steps<kBounds[kPart], kBounds[kPart + 1]>(next);
  }
  __device__ __forceinline__ void multiply_further() { multiply_part<1>(); }

  // The scores that were computed.
  __device__ __forceinline__ void take_scores() {
    pin(next);
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = next[i];
  }
};

template <class Base>
struct AheadSteps : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using Base::Base;
  using Base::stages, Base::query, Base::key, Base::value, Base::tile_words, Base::block,
      Base::adds, Base::maximum, Base::sum, Base::kept, Base::o, Base::p, Base::tensors,
      Base::kWords, Base::release, Base::fetch, Base::read_block, Base::begin_tile,
      Base::take_scores, Base::take_products, Base::scale_outputs, Base::rescales, Base::pack,
      Base::hand_over, Base::wait_for_values, Base::weigh_values, Base::finished_rows_of;

  // All tiles.
  __device__ __forceinline__ void run_tiles() {
#pragma unroll
    for (int i = 0; i < Base::kOutputs; ++i) o[i] = 0;
#pragma unroll
    for (int i = 0; i < kWords; ++i) p[i] = 0;
    fetch(0);
    while (block != kEndOfStream) {
      begin_tile();
      multiply_all();
      while (!(block & kLastOfTile)) step<true>();
      step<false>();
      end_tile();
    }
    if constexpr (C::kShares > 1) {
      const unsigned none[kWords] = {};
      hand_over(kEndOfStream, none, {1, 1});
    }
  }

 private:
  // The scores of a tile's first block.
  __device__ __forceinline__ void multiply_all() {
    this->template multiply_part<0>();
    this->template multiply_part<1>();
    this->template multiply_part<2>();
    wait_for_products<0>();
    end_scores(block);
  }

  // A block whose scores are computed, while values of the block before are weighed. kMore: the
  // tile has another block.
  template <bool kMore>
  __device__ __forceinline__ void step() {
    const unsigned now = block;
    const bool first = now & kFirstOfTile;
    unsigned following = 0;
    take_scores();
    bool reads = !first;  // whether values of the block before may still be read
    if constexpr (kMore) {
      reads = await_keys(reads);
      read_block();
      following = block, block = now;
      this->template multiply_part<0>();
    }
    float factor[2] = {1, 1};
    this->scale_scores();
    const bool moved = this->template weigh_scores<kMore>(factor);
    if constexpr (kMore) this->template multiply_part<2>();
    const bool scales = !first && rescales(moved);
    unsigned packed[kWords];
    pack(packed);
    if constexpr (E::kRandom) this->drop_at_random(packed);
    if constexpr (C::kShares > 1) {
      hand_over(now & (kFirstOfTile | kLastOfTile) | (scales ? kScalesOutputs : 0), packed, factor);
    }
    wait_for_products<0>();
    pin(o);
    if (reads) end_values();
    if constexpr (kMore) end_scores(following);
    if (scales) scale_outputs(factor);
    take_weights(packed);
    adds = !first;
    if constexpr (!C::kValuesOfKeys) wait_for_values();
    weigh_values();
    if constexpr (kMore) block = following;
  }

  // Waits for the keys of the next block. Where these are late, values of the block before are
  // waited for first, if they may still be read, so that their stage is copied to. Whether they may
  // be still.
  __device__ __forceinline__ bool await_keys(bool reads) {
    if (__all_sync(~0u, is_done(stages.key_full(key.stage), key.parity))) return reads;
    if (reads) {
      wait_for_products<0>();
      end_values();
    }
    wait(stages.key_full(key.stage), key.parity);
    return false;
  }

  // Weights go where the product before has read those before. The assembler keeps these registers
  // for as long as it sees a use: it does not look for products of the step before. So there is
  // one, of a condition that never holds.
  __device__ __forceinline__ void take_weights(const unsigned (&packed)[kWords]) {
    pin(p);
    const bool never = tensors.o == nullptr;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if (C::kEightRows && i % 2 == 1) continue;  // of the other row, and 0
      p[i] = never ? p[i] : packed[i];
    }
  }

  // The scores of a block are computed.
  __device__ __forceinline__ void end_scores(unsigned word) {
    if constexpr (!C::kValuesOfKeys) release(stages.key_full(key.stage));
    key.next();
    if (!(word & kLastOfTile)) return;
    release(stages.query_full(query.stage));
    query.next();
  }
  // Values are read.
  __device__ __forceinline__ void end_values() {
    release(stages.value_full(value.stage));
    value.next();
  }

  __device__ __forceinline__ void end_tile() {
    const auto at = finished_rows_of(tile_words);
    typename Base::Ahead ahead;
    this->read_ahead(at, ahead);
    take_products();
    this->finish(at, {maximum, sum, kept}, ahead);
    fetch(0);
  }
};

}  // namespace kernels
