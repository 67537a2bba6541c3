// Products of the backward by warps (mma.cuh). A warp has 16 keys, and all rows of a block, or
// those of its row group: then it makes dK and dV of its part of the columns from all rows.
#pragma once

#include "attn/backward_thread.cuh"
#include "attn/mma_backward_stages.cuh"
#include "attn/mma_panels.cuh"
#include "attn/transposed.cuh"

namespace kernels {

// A thread of such a warp: where its keys and rows are.
template <class Base>
struct ThreadOfStrip : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using Base::Base;
  using Base::stages, Base::group, Base::steps, Base::p, Base::ds, Base::kept, Base::kScores,
      Base::kRowsOfWarp, Base::lane, Base::warp, Base::row_group;

  // The keys and values of the item.
  __device__ __forceinline__ unsigned keys_of_item() const { return stages.keys(); }
  __device__ __forceinline__ unsigned values_of_item() const { return stages.values(); }

  __device__ __forceinline__ int warp_of_block() const { return group * 4 + (int)warp(); }
  __device__ __forceinline__ int warp_of_keys() const { return warp_of_block(); }
  // Which 16 keys it has.
  __device__ __forceinline__ int strip() const { return warp_of_block() % (S::kKeys / 16); }

  // Matrices of scores, as words of this thread: its first key, and the first of its rows.
  __device__ __forceinline__ unsigned slopes_of_lane(int) const { return word_of(stages.slopes()); }
  __device__ __forceinline__ unsigned weights_of_lane() const { return word_of(stages.weights()); }
  __device__ __forceinline__ void store_slopes(unsigned place, int j) const {
    store_words(place, j - 1, ds), store_words(place, j, ds);
  }
  __device__ __forceinline__ void store_weights() const {
    const unsigned place = weights_of_lane();
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j) store_words(place, j, p);
  }

  // As that of a warp group (backward_group.cuh).
  __device__ __forceinline__ void load_entries(unsigned (&entries)[4], int, int j) const {
    const unsigned at = vector_of(word_of(stages.table()), j);
    entries[j % 2 * 2] = load_shared(at),
                    entries[j % 2 * 2 + 1] = load_shared(at + 8 * S::kSlopeRow);
  }

  __device__ __forceinline__ void wait_for_kept() const {}  // all threads have met since
  // The bits of all rows of the block are together, four for each 8 rows.
  __device__ __forceinline__ void take_kept() {
    const unsigned place = stages.drawn(steps) + (strip() * 32 + lane()) * 8;
    if constexpr (C::kRowGroups == 1) {
      const float2 both = load_two(place);
      kept[0] = __float_as_uint(both.x), kept[1] = __float_as_uint(both.y);
    } else {
      const int first = row_group() * (kScores / 4);  // 8 rows each
      kept[0] = load_shared(place + first / 4 * 4) >> first % 4 * 8;
    }
  }

 private:
  static_assert(kScores <= 16 || C::kRowGroups == 1, "a word of bits");

  // Vectors of 8 rows are swizzled as lane_offset() does: those of keys 8 apart alike.
  __device__ __forceinline__ unsigned word_of(unsigned matrix) const {
    const unsigned key = strip() * 16 + lane() / 4;
    return matrix + key * S::kSlopeRow + (lane() & 3) * 4;
  }
  template <int kCount>
  __device__ __forceinline__ void store_words(unsigned place, int j,
                                              const unsigned (&words)[kCount]) const {
    const unsigned at = vector_of(place, j);
    store_shared(at, words[2 * j]);
    store_shared(at + 8 * S::kSlopeRow, words[2 * j + 1]);
  }
  // The word of the j-th 8 rows of this warp.
  __device__ __forceinline__ unsigned vector_of(unsigned place, int j) const {
    const unsigned swizzle = lane() / 4 / (64 / C::kBlockRows) % (C::kBlockRows / 8);
    const unsigned vector = row_group() * (kRowsOfWarp / 8) + j;
    return place + (vector ^ swizzle) * 16;
  }
};

// S^T, dP^T, dV, dK.
template <class Base>
struct ProductsOfStripOfKeys : Base {
  using C = typename Base::C;
  using Float = typename Base::Float;
  using S = typename Base::S;
  using Base::Base;
  using Base::stages, Base::s, Base::dp, Base::dk, Base::dv, Base::p, Base::ds, Base::kScores,
      Base::kRowsOfWarp, Base::lane, Base::strip, Base::row_group;

  // Reads this warp's keys and values, where registers hold them for all steps of an item.
  __device__ __forceinline__ void hold_keys() {
    hold<C::kHeldKeys, C::kDepthPanel, S::kKeyPanel>(own_keys, this->keys_of_item());
    hold<C::kHeldValues, C::kWidthPanel, S::kValuePanel>(own_values, this->values_of_item());
  }

  __device__ __forceinline__ void multiply_keys(int n) {
    multiply_rows<C::kHeldKeys, C::Queries::kColumns, C::kDepthPanel, S::kKeyPanel, S::kQueryPanel>(
        s, own_keys, this->keys_of_item(), stages.query(n));
  }
  __device__ __forceinline__ void multiply_gradients(int n) {
    multiply_rows<C::kHeldValues, C::Outputs::kColumns, C::kWidthPanel, S::kValuePanel,
                  S::kGradientPanel>(dp, own_values, this->values_of_item(), stages.gradient(n));
  }
  __device__ __forceinline__ void add_values(int n) {
    add_product<C::kWidthPanel, S::kGradientPanel>(dv, p, stages.weights(), stages.gradient(n));
  }
  __device__ __forceinline__ void add_keys(int n) {
    add_product<C::kDepthPanel, S::kQueryPanel>(dk, ds, stages.slopes(), stages.query(n));
  }

 private:
  unsigned own_keys[C::kHeldKeys > 0 ? C::kHeldKeys : 1][4];
  unsigned own_values[C::kHeldValues > 0 ? C::kHeldValues : 1][4];

  // Where this lane reads its warp's keys.
  template <int kPanel>
  __device__ __forceinline__ unsigned own(unsigned of_keys) const {
    return of_keys + strip() * 16 * (2 * kPanel) + lane_offset<kPanel>(lane() & 15, lane() >> 4);
  }
  template <int kHeld, int kPanel, int kPanelOfKeys, int kCount>
  __device__ __forceinline__ void hold(unsigned (&words)[kCount][4], unsigned of_keys) const {
    const unsigned x = own<kPanel>(of_keys);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) load_matrices(words[i], at_step<kPanel>(x, i, kPanelOfKeys));
  }

  // c = a b^T: this warp's keys of a, its rows of b, kColumns of each.
  template <int kHeld, int kColumns, int kPanel, int kPanelOfKeys, int kPanelOfRows, int kCount>
  __device__ __forceinline__ void multiply_rows(float (&c)[kScores],
                                                const unsigned (&held)[kCount][4], unsigned of_keys,
                                                unsigned of_rows) const {
    const unsigned x = own<kPanel>(of_keys);
    const unsigned y = of_rows + row_group() * kRowsOfWarp * (2 * kPanel) +
                       lane_offset<kPanel>((lane() & 7) + (lane() >> 4) * 8, lane() >> 3 & 1);
#pragma unroll
    for (int i = 0; i < kScores; ++i) c[i] = 0;
#pragma unroll
    for (int i = 0; i < (kColumns + 15) / 16; ++i) {
      unsigned read[4], b[4];
      if (i >= kHeld) load_matrices(read, at_step<kPanel>(x, i, kPanelOfKeys));
      const unsigned* const a = i < kHeld ? held[i < kCount ? i : 0] : read;
      const unsigned from = at_step<kPanel>(y, i, kPanelOfRows);
#pragma unroll
      for (int j = 0; j < kRowsOfWarp / 16; ++j) {
        load_matrices(b, from + j * 16 * (2 * kPanel));
        kernels::multiply(Float{}, c, 8 * j, a, b[0], b[1]);
        kernels::multiply(Float{}, c, 8 * j + 4, a, b[2], b[3]);
      }
    }
  }

  // c += a b: this warp's keys of a, which it has in registers or, if others have some of them, in
  // shared memory; all rows of b, this warp's columns.
  template <int kPanel, int kPanelOfRows, int kOutputs>
  __device__ __forceinline__ void add_product(float (&c)[kOutputs],
                                              const unsigned (&words)[kScores / 2],
                                              unsigned of_scores, unsigned of_rows) const {
    static_assert(C::kRowGroups == 1 || 2 * kOutputs % kPanel == 0, "whole panels of columns");
    const unsigned x = of_scores + strip() * 16 * S::kSlopeRow +
                       lane_offset<C::kBlockRows>(lane() & 15, lane() >> 4);
    const unsigned y = of_rows + row_group() * (2 * kOutputs / kPanel) * kPanelOfRows +
                       lane_offset<kPanel>(lane() & 15, lane() >> 4);
#pragma unroll
    for (int i = 0; i < C::kBlockRows / 16; ++i) {
      unsigned a[4], b[4];
      if constexpr (C::kRowGroups > 1) load_matrices(a, at_step<C::kBlockRows>(x, i, 0));
#pragma unroll
      for (int j = 0; j < kOutputs / 8; ++j) {
        load_transposed(b, at_step<kPanel>(y, j, kPanelOfRows) + i * 16 * (2 * kPanel));
        const unsigned* const of_keys = C::kRowGroups > 1 ? a : words + 4 * i;
        kernels::multiply(Float{}, c, 8 * j, of_keys, b[0], b[1]);
        kernels::multiply(Float{}, c, 8 * j + 4, of_keys, b[2], b[3]);
      }
    }
  }
};

}  // namespace kernels
