// dK and dV, as the backward stores them.
#pragma once

#include "attn/backward_stages.cuh"
#include "attn/backward_tensors.cuh"
#include "attn/division.cuh"
#include "attn/exchange.cuh"
#include "attn/gradient_columns.cuh"
#include "attn/places.cuh"

namespace kernels {

// Stores two rows of an accumulator that this thread has a part of, 8 apart: those of its columns
// that the tensor has, of the rows before `rows`. `first`: the accumulator's column. `lane` says
// which of the warp it is; rounded(x, y, exists) makes a pair of elements of a row that the tensor
// has, or not.
template <class P, typename Bits, int kOutputs, class Lane, class Rounded>
ATTN_INLINE void store_two_rows(Bits* to, const int* starts, int b, int head, int row, int rows,
                                int first, const float (&c)[kOutputs], const Lane& lane,
                                const Rounded& rounded) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int at = row + 8 * r;
    Bits* const of_row = to + P::place(starts, b, head, at);
#pragma unroll
    for (int part = 0; part < kOutputs / 16; ++part) {
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int from = (4 * part + i) * 4 + 2 * r;
        pairs[i] = rounded(c[from], c[from + 1], at < rows);
      }
      exchange(pairs, lane());
      const int column = first + (4 * part + (lane() & 3)) * 8;
      if (at < rows && column < P::kColumns) P::store(of_row + column * P::kColumn, column, pairs);
    }
  }
}

// Stores them as gradients, or sums of parts (kDivided).
template <class Base>
struct StoredKeys : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using S = typename Base::S;
  using Base::Base;
  using Base::tensors, Base::expressions, Base::key, Base::lane;

  __device__ __forceinline__ void store_dk(int unit) const {
    const GradientFactors<C, E> factors{expressions};
    store<typename C::Keys>(tensors.dk, 0, unit, this->dk, factors.of_keys(), factors.stored_keys(),
                            tensors.amax_dk);
  }
  __device__ __forceinline__ void store_dv(int unit) const {
    const GradientFactors<C, E> factors{expressions};
    store<typename C::Values>(tensors.dv, C::kDepth, unit, this->dv, factors.of_values(),
                              factors.stored_values(), tensors.amax_dv);
  }

  // Stores dK or dV of this thread's keys. Those of a part begin at column `first`.
  template <class P, int kOutputs>
  __device__ __forceinline__ void store(void* gradient, int first, int unit,
                                        const float (&c)[kOutputs], float factor,
                                        StoredGradient<C> stored, unsigned* amax) const {
    GradientBits<C>* const to = static_cast<GradientBits<C>*>(gradient);
    if (to == nullptr) return;
    if constexpr (kDivides<C>) {
      if (unit & kOfPart) return store_part(first, unit ^ kOfPart, c, factor);
    }
    const int of_warp = this->row_group() * (2 * kOutputs);  // its first column
    const int b = unit / C::kKeyHeads, keys = P::kPacked ? expressions.keys(b) : C::kColumns;
    store_two_rows<P>(
        to, tensors.column_starts, b, unit % C::kKeyHeads, key, keys, of_warp, c,
        [] { return Base::lane(); },
        [&](float x, float y, bool exists) {
          return stored.rounded(x * factor, y * factor, exists);
        });
    stored.store_largest(amax);
  }

  template <int kOutputs>
  __device__ __forceinline__ void store_part(int first, int part, const float (&c)[kOutputs],
                                             float factor) const {
    constexpr int kRow = C::kDepth + C::kWidth;
    float* const to = tensors.key_sums + ((long long)part * S::kKeys + key % S::kKeys) * kRow +
                      first + this->row_group() * (2 * kOutputs);
#pragma unroll
    for (int i = 0; i < kOutputs; i += 2) {
      const int column = i / 4 * 8 + (lane() & 3) * 2;
      *reinterpret_cast<float2*>(to + i / 2 % 2 * 8 * kRow + column) =
          float2{c[i] * factor, c[i + 1] * factor};
    }
  }
};

}  // namespace kernels
