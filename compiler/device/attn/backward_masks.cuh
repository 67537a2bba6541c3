// Masks of the backward: which scores of a block are hidden.
#pragma once

#include "attn/backward_stages.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

// Hides scores.
template <class Base>
struct BackwardMasks : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using S = typename Base::S;
  using RowBlock = typename Base::RowBlock;
  using Base::Base;
  using Base::expressions, Base::key, Base::s, Base::kScores, Base::row_of, Base::key_of,
      Base::held_row, Base::held_key;

  // Whether scores of the block may be hidden, as those of rows past the last one are: their
  // exponents are -inf, but a modified score may be inf.
  static constexpr bool kHidesKeys = C::kLengths || C::kColumns % S::kKeys != 0;
  static constexpr bool kHidesRows = E::kScore && !C::kRowsFit;
  static constexpr bool kMayHide = E::kMask || kHidesKeys || kHidesRows;
  __device__ __forceinline__ bool hides(const RowBlock& block) const {
    return (E::kMask && block.rows & kMasked) ||
           (kHidesKeys && (key | S::kKeys - 1) >= expressions.keys(block.b())) ||
           (kHidesRows && block.first() + C::kBlockRows > expressions.queries(block.b()));
  }
  __device__ __forceinline__ bool shows(const RowBlock& block, int i) const {
    bool shown = true;
    if constexpr (E::kMask) {
      if (block.rows & kMasked) {
        shown = expressions.mask(block.b(), block.h(), held_row(block, i), held_key(i));
      }
    }
    if (kHidesKeys) shown &= key_of(i) < expressions.keys(block.b());
    if (kHidesRows) shown &= row_of(block, i) < expressions.queries(block.b());
    return shown;
  }

  __device__ __forceinline__ void hide(const RowBlock& block) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = shows(block, i) ? s[i] : nothing();
  }
};

}  // namespace kernels
