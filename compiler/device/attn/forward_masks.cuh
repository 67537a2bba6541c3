// Masks of the forward: which scores of a block are hidden.
#pragma once

#include "attn/tile_rows.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

// Hides scores.
template <class Base>
struct ForwardMasks : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using Base::Base;
  using Base::expressions, Base::tile_words, Base::block, Base::s, Base::kScores, Base::rows_of,
      Base::column, Base::held_column;

  // Scores that have a bound are hidden when they are weights. So no branch parts what makes a
  // score from its exponential, and both share the special-function unit without a gap. Where a
  // score is its weight, a hidden one is 0.
  static constexpr bool kHidesWeights = E::kBounded && !E::kSigmoid && !E::kQuotient;
  static __device__ __forceinline__ float hidden() { return kHidesWeights ? 0.0f : nothing(); }

  __device__ __forceinline__ void hide_masked() {
    const TileRows<C> rows = rows_of(tile_words);
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int r = i / 2 & 1;
      const bool shown = expressions.mask(rows.b, rows.h[r], rows.row(r), held_column(i));
      s[i] = shown ? s[i] : hidden();
    }
  }

  // The same by masks that read no tensor.
  __device__ __forceinline__ void hide_masked_by_indices() {
    const TileRows<C> rows = rows_of(tile_words);
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int r = i / 2 & 1;
      const bool shown = expressions.mask_by_indices(rows.b, rows.h[r], rows.row(r), column(i));
      s[i] = shown ? s[i] : hidden();
    }
  }

  __device__ __forceinline__ void hide_past_keys() {
    const int keys = expressions.keys(rows_of(tile_words).b);
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = column(i) < keys ? s[i] : hidden();
  }

  __device__ __forceinline__ void hide() {
    if constexpr (E::kMask) {
      constexpr unsigned kWhich = E::kMasksByIndices ? kMasked | kByIndices : kMasked;
      if ((block & kWhich) == kMasked) hide_masked();
      if constexpr (E::kMasksByIndices) {
        if (block & kByIndices) hide_masked_by_indices();
      }
    }
    if constexpr (!C::kPatches) {
      if (block & kPastKeys) hide_past_keys();
    }
  }
};

}  // namespace kernels
