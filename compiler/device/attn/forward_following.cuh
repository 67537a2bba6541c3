// Weights of 8-bit floats: maxima follow the scores only where these exceed what the type has room
// for.
#pragma once

#include "attn/reals.cuh"
#include "attn/wgmma.cuh"

namespace kernels {

// Softmax in parts, around what else a step does (FollowingSteps).
template <class Base>
struct FollowingWeights : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using Base::Base;
  using Base::exponent, Base::raised, Base::limit, Base::maximum, Base::sum, Base::kept, Base::s,
      Base::kScores, Base::modify, Base::hide;

  // Modifies and hides scores, and gets what shifts their powers of 2. True if a maximum of the
  // warp moved; gets factors as softmax does.
  __device__ __forceinline__ bool follow_scores(float (&shift)[2], float (&factor)[2]) {
    float own[2];
    if constexpr (E::kScore) modify(shift);
    hide();
    largest_of_thread(own);
    bool above = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (E::kScore) {
        if (own[r] == nothing()) shift[r] = 0;  // so that hidden rows make no NaN
        own[r] += shift[r], shift[r] *= exponent;
      }
      if constexpr (C::kAmaxOfWeights) kept[r] = fmaxf(kept[r], own[r]);
      above |= fmaf(own[r], exponent, raised - maximum[r]) > limit;
    }
    const bool moved = __any_sync(~0u, above);
    if (moved) move_maxima(own, factor);
    return moved;
  }

  __device__ __forceinline__ void move_maxima(const float (&own)[2], float (&factor)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = fmaxf(own[r], __shfl_xor_sync(~0u, own[r], 1));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
      if (!(fmaf(largest, exponent, raised - maximum[r]) > limit)) continue;
      const float before = maximum[r];
      maximum[r] = fmaxf(largest * exponent, kLowest);
      factor[r] = power_of_two(before - maximum[r]);
      sum[r] *= factor[r];
    }
  }

  // The largest of the scores that a thread has of a row. Bits of floats compare as integers if the
  // largest is positive.
  __device__ __forceinline__ void largest_of_thread(float (&own)[2]) const {
    int most[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) most[j] = __float_as_int(s[j]);
#pragma unroll
    for (int i = 4; i + 4 < kScores; i += 8) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        most[j] = largest_of(most[j], __float_as_int(s[i + j]), __float_as_int(s[i + 4 + j]));
    }
    // Where their number is a multiple of 8, the last 4 are left.
    constexpr int kLast = kScores - 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int all = most[2 * r];
      if constexpr (kScores % 8 == 0) {
        all = largest_of(all, most[2 * r + 1], __float_as_int(s[kLast + 2 * r]));
        all = max(all, __float_as_int(s[kLast + 2 * r + 1]));
      } else {
        all = max(all, most[2 * r + 1]);
      }
      own[r] = __int_as_float(all);
    }
    if (__builtin_expect((__float_as_int(own[0]) | __float_as_int(own[1])) >= 0, true)) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      own[r] = s[2 * r];
#pragma unroll
      for (int i = 2 * r; i < kScores; i += 4) own[r] = fmaxf(own[r], fmaxf(s[i], s[i + 1]));
    }
  }

  // Makes weights of some of the scores, and adds them.
  template <int kFrom, int kTo>
  __device__ __forceinline__ void weigh_scores_between(const float (&shift)[2]) {
#pragma unroll
    for (int i = kFrom; i < kTo; ++i) {
      const int r = i / 2 & 1;
      const float added = raised - maximum[r];
      s[i] = power_of_two(fmaf(s[i], exponent, E::kScore ? added + shift[r] : added));
    }
#pragma unroll
    for (int i = kFrom; i < kTo; ++i) sum[i / 2 & 1] += s[i];
  }

  static constexpr int kFirstWeights = kScores < 128 ? 8 : 32;
  __device__ __forceinline__ void weigh_first_scores(const float (&shift)[2]) {
    weigh_scores_between<0, kFirstWeights>(shift);
  }
  __device__ __forceinline__ void weigh_other_scores(const float (&shift)[2]) {
    weigh_scores_between<kFirstWeights, kScores>(shift);
  }
};

// The rest of a step, of as few instructions as can be: they take most of its time. Lanes exchange
// their largest scores only where one exceeds the limit. The product of the block before ends among
// the first exponentials, so weights go where it read those before, without a copy.
template <class Base>
struct FollowingSteps : Base {
  using C = typename Base::C;
  using Statistics = typename Base::Statistics;
  using Base::Base;
  using Base::key, Base::tile_words, Base::block, Base::adds, Base::maximum, Base::sum, Base::kept,
      Base::p, Base::begin_tile, Base::begin_step, Base::fetch, Base::pack, Base::take_products,
      Base::scale_outputs, Base::finished_rows_of, Base::finish, Base::follow_scores,
      Base::weigh_first_scores, Base::weigh_other_scores, Base::read_ahead;

  template <bool kWeighs>
  __device__ __forceinline__ void step() {
    const bool first = block & kFirstOfTile;
    const unsigned words_before[2] = {tile_words[0], tile_words[1]};
    const float maximum_before[2] = {maximum[0], maximum[1]}, sum_before[2] = {sum[0], sum[1]};
    const float kept_before[2] = {kept[0], kept[1]};
    if (first) begin_tile();
    this->template begin_step<kWeighs>();
    follow<kWeighs>(first, words_before, {maximum_before, sum_before, kept_before});
  }

  template <bool kWeighs>
  __device__ __forceinline__ void follow(bool first, const unsigned (&words_before)[2],
                                         const Statistics& before) {
    float shift[2] = {0, 0}, factor[2] = {1, 1};
    const bool moved = follow_scores(shift, factor);
    key.next();
    typename Base::Ahead ahead;
    if (kWeighs && first) read_ahead(finished_rows_of(words_before), ahead);
    weigh_first_scores(shift);
    // 0, as the sums are positive.
    fetch(unknown((int)(__float_as_uint(sum[0] + sum[1]) >> 28 & 8)));
    if (kWeighs) {
      take_products();
      if (first)
        finish(finished_rows_of(words_before), before, ahead);
      else if (moved)
        scale_outputs(factor);
    }
    adds = !first;
    pin(p);
    weigh_other_scores(shift);
    pack(p);
  }
};

}  // namespace kernels
