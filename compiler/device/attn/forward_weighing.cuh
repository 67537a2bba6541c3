// What blocks of keys have in common, whatever computes their products: rows begin, scores become
// weights, and what was summed before follows the maxima.
#pragma once

#include "attn/reals.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

template <class Base>
struct WeighedScores : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using Base::Base;
  using Base::tile_words, Base::maximum, Base::sum, Base::kept, Base::o, Base::s, Base::kScores,
      Base::kOutputs, Base::kFollows, Base::kOf8Bits, Base::kHidesWeights, Base::modify, Base::hide,
      Base::drop;

  // Begins the rows of the tile that `tile_words` say.
  __device__ __forceinline__ void begin_rows() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      maximum[i] = E::kBounded ? 0.0f : nothing(), sum[i] = kept[i] = 0;
      if (kFollows) maximum[i] = kLowest, kept[i] = nothing();
    }
    if constexpr (E::kEpilogue) this->prefetch_rows(this->rows_of(tile_words));
  }

  // Makes weights of the scores. Gets the factor of what was summed so far; true if it is not 1.
  // kAhead: among it, more of the product with the next keys is issued (forward_ahead.cuh).
  template <bool kAhead = false>
  __device__ __forceinline__ bool weigh_scores(float (&factor)[2]) {
    float shift[2] = {0, 0};
    if constexpr (E::kScore) modify(shift);
    if constexpr (!kHidesWeights) hide();
    bool moved;  // weights that follow have none
    if constexpr (kAhead)
      moved = this->template make_weights<true>(shift, factor);
    else
      moved = this->make_weights(shift, factor);
    if constexpr (E::kKeep) drop();
    if constexpr (!C::kEightRows) return moved;
    forget_lower_rows(factor);
    return factor[0] != 1;
  }

  // Multiplies what was summed so far, where that is of use.
  __device__ __forceinline__ void rescale(bool moved, const float (&factor)[2]) {
    if (rescales(moved)) scale_outputs(factor);
  }
  __device__ __forceinline__ bool rescales(bool moved) const {
    return !E::kBounded && ((!C::kLazy && !kOf8Bits) || __any_sync(~0u, moved));
  }
  // Leaves the compiler nothing to compute of rows that a tile does not have.
  __device__ __forceinline__ void forget_lower_rows(float (&factor)[2]) {
#pragma unroll
    for (int i = 2; i < kScores; i += 4) s[i] = s[i + 1] = 0;
    maximum[1] = sum[1] = kept[1] = 0, factor[1] = 1;
  }
  __device__ __forceinline__ void scale_outputs(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] *= factor[i / 2 & 1];
  }
};

}  // namespace kernels
