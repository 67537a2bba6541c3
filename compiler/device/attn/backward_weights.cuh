// Weights of the backward: softmax, by what the forward knows of each row, sigmoid, scores, or
// quotients.
#pragma once

#include "attn/reals.cuh"
#include "attn/transposed.cuh"

namespace kernels {

// A weight is a power of 2, whose derivative is itself.
template <class Base>
struct ExponentialWeights : Base {
  using Base::Base;

  static __device__ __forceinline__ float weight_at(float x) { return power_of_two(x); }
  static __device__ __forceinline__ float slope_at(float, float weight) { return weight; }
  // Whether the score of a weight counts for learned tensors.
  static __device__ __forceinline__ bool counts(float weight, float) { return weight != 0; }
};

// A weight is the sigmoid of its score.
template <class Base>
struct SigmoidSlopes : Base {
  using Base::Base;

  static __device__ __forceinline__ float weight_at(float x) {
    return reciprocal(1 + power_of_two(-x));
  }
  static __device__ __forceinline__ float slope_at(float, float weight) {
    return fmaf(-weight, weight, weight);
  }
  static __device__ __forceinline__ bool counts(float weight, float) { return weight != 0; }
};

// A weight is its score, and 0 where that is hidden.
template <class Base>
struct LinearSlopes : Base {
  using Base::Base;

  static __device__ __forceinline__ float weight_at(float x) { return x == nothing() ? 0.0f : x; }
  static __device__ __forceinline__ float slope_at(float x, float) {
    return x == nothing() ? 0.0f : 1.0f;
  }
  static __device__ __forceinline__ bool counts(float, float slope) { return slope != 0; }
};

// The numerator of a weight, and the derivatives by the score of this and of its part of the sum.
struct QuotientSlopes {
  float f, d_f, d_g;
};

// A weight is one function of its score over the sum of another. With kExponential, both are in
// proportion to a term, exp(s), and to 1: divided by the sum, they are those of the term exp(s -
// lse) and of the unit exp(-lse).
template <class Base>
struct DividedWeights : ExponentialWeights<Base> {
  using E = typename Base::E;
  using ExponentialWeights<Base>::ExponentialWeights;
  using Base::expressions, Base::exponent, Base::s, Base::d_sum, Base::kKeepsTerms;

  // Score i, without its factor, whose derivative by the product is `slope`. Returns the weight,
  // and keeps both derivatives in `s` and in `d_sum`. `added`: the power of 2 that is exp(-lse).
  __device__ __forceinline__ float divided(int i, float score, float slope, float added,
                                           bool shown) {
    const float x = fmaf(score, exponent, E::kExponential ? added : 0.0f);
    const bool hidden = !shown || x == nothing() || added == nothing();
    const float inverse = E::kUnit || !E::kExponential ? power_of_two(added) : 1.0f;
    const float term = E::kExponential ? power_of_two(x) : x;
    QuotientSlopes of = expressions.slopes(term, E::kExponential ? inverse : 1.0f);
    if (!E::kExponential) of = {of.f * inverse, of.d_f * inverse, of.d_g * inverse};
    if constexpr (kKeepsTerms) {
      s[i] = hidden ? 0.0f : term;
    } else {
      s[i] = hidden ? 0.0f : of.d_f * slope;
      d_sum[i] = hidden ? 0.0f : of.d_g * slope;
    }
    return hidden ? 0.0f : of.f;
  }
};

// Makes weights of products.
template <class Base>
struct BackwardWeights : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using Float = typename Base::Float;
  using RowBlock = typename Base::RowBlock;
  using Base::Base;
  using Base::stages, Base::expressions, Base::exponent, Base::steps, Base::s, Base::p, Base::held,
      Base::kDrops, Base::kScores, Base::kMayHide, Base::weight_at, Base::slope_at, Base::counts,
      Base::lane, Base::rows_of, Base::held_row, Base::held_key, Base::hides, Base::shows,
      Base::hide, Base::is_kept, Base::keep, Base::take_kept;

  // Makes weights of the products, and keeps in `s` weights times slopes.
  __device__ __forceinline__ void weigh(unsigned n) {
    const RowBlock block = rows_of(steps);
    if constexpr (E::kKeep) keep(block);
    if constexpr (E::kRandom) {
      this->wait_for_kept();
      take_kept();
    }
    if constexpr (kHidesFirst || !kMayHide) {
      if (hides(block)) hide(block);
      weigh<false>(block, n);
    } else if (hides(block)) {
      weigh<true>(block, n);
    } else {
      weigh<false>(block, n);
    }
  }

  // Hidden products become -inf before weights are made, where that takes fewer registers.
  static constexpr bool kHidesFirst = !E::kScore || E::kReadsTensors || C::kTable;
  template <bool kHides>
  __device__ __forceinline__ void weigh(const RowBlock& block, unsigned n) {
    const unsigned exponents = this->row_values(stages.exponents(n));
    unsigned entries[4] = {};  // of the table, for two j
    float terms[E::kTurnsOfScore > 0 ? kScores : 1];
    if constexpr (E::kTurnsOfScore > 0) sum_terms(block, terms);
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j) {
      const float2 added = load_two(exponents + j * 32);
      if constexpr (C::kTable) this->load_entries(entries, n, j);
      RowBlock own = block;  // whose rows are not kept for all j
      if (kHides) own.rows = unknown(own.rows), own.first_row = unknown(own.first_row);
      float weights[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool shown = kHides                    ? shows(own, 4 * j + i)
                           : kHidesFirst && kMayHide ? s[4 * j + i] != nothing()
                                                     : true;
        const unsigned entry = entries[j % 2 * 2 + i / 2] >> (i & 1) * 16;
        weights[i] = weight_of(block, 4 * j + i, i & 1 ? added.y : added.x, shown,
                               C::Entry::widen((unsigned short)entry),
                               E::kTurnsOfScore > 0 ? terms[4 * j + i] : 0);
        if (kDrops && !is_kept(4 * j + i)) weights[i] = 0;
      }
      p[2 * j] = pair(Float{}, weights[0], weights[1]);
      p[2 * j + 1] = pair(Float{}, weights[2], weights[3]);
    }
  }

  template <class Features>
  __device__ __forceinline__ void make_features(const RowBlock& block,
                                                Features (&features)[kScores]) const {
#pragma unroll
    for (int i = 0; i < kScores; ++i)
      features[i] = expressions.features(block.b(), block.h(), held_row(block, i), held_key(i));
  }

  // The terms of each score that are taken in turns.
  __device__ __forceinline__ void sum_terms(const RowBlock& block, float (&terms)[kScores]) const {
    typename E::Features features[kScores];
    make_features(block, features);
    sum_turns<E::kTurnsOfScore>(terms, [&](int turn, int i) {
      return expressions.term_of_score(block.b(), block.h(), turn, features[i]);
    });
  }
  template <int kTurns, typename Term>
  static __device__ __forceinline__ void sum_turns(float (&sums)[kScores], const Term& term) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) sums[i] = 0;
#pragma unroll 1
    for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) sums[i] += term(turn, i);
    }
  }

  __device__ __forceinline__ float weight_of(const RowBlock& block, int i, float added, bool shown,
                                             float entry, float terms) {
    if constexpr (E::kQuotient && !E::kScore) {
      return this->divided(i, s[i], 1, added, shown);
    } else if constexpr (E::kQuotient) {
      auto scored =
          expressions.evaluate(block.b(), block.h(), held_row(block, i), held_key(i), entry, s[i]);
      if constexpr (E::kTurnsOfScore > 0) scored.score += terms;
      return this->divided(i, scored.score, scored.slope, added, shown);
    } else if constexpr (!E::kScore) {
      const float x = fmaf(s[i], exponent, added), weight = weight_at(x);
      s[i] = slope_at(x, weight);
      return weight;
    } else {
      const float product = C::kNarrow ? s[i] * this->of_products : s[i];
      auto scored = expressions.evaluate(block.b(), block.h(), held_row(block, i), held_key(i),
                                         entry, product);
      if constexpr (E::kTurnsOfScore > 0) scored.score += terms;
      const float exponent_of = fmaf(scored.score, exponent, added);
      const float x = shown ? exponent_of : nothing(), weight = weight_at(x);
      const float of_score = slope_at(x, weight);
      const bool counted = counts(weight, of_score);
      s[i] = E::kFiniteSlope || counted ? of_score * scored.slope : 0.0f;
      if constexpr (E::kHeld > 0) {
#pragma unroll
        for (int n = 0; n < E::kHeld; ++n) {
          held[n][i] = counted ? of_score * scored.by[n] : 0.0f;
        }
      }
      return weight;
    }
  }
};

}  // namespace kernels
