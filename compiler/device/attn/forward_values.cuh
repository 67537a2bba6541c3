// Products of weights and values, and the weights as their operands.
#pragma once

#include "attn/wgmma.cuh"

namespace kernels {

// 16-bit floats: rows of values are keys.
template <class Base>
struct ValuesOf16Bits : Base {
  using C = typename Base::C;
  using Float = typename Base::Float;
  using S = typename Base::S;
  using Base::Base;
  using Base::stages, Base::value, Base::adds, Base::o, Base::p, Base::s, Base::kWidth,
      Base::kFirstOfWidth;

  __device__ __forceinline__ void weigh_values() {
    constexpr int kFirstPanel = kFirstOfWidth / C::kWidthPanel;
    const auto b =
        matrix<C::kWidthPanel>(stages.value(value.stage) + kFirstPanel * S::kValuePanelStride,
                               S::kValueGroup, S::kValuePanelStride);
    pin(o);
    pin(p);
    begin_products();
#pragma unroll
    for (int i = 0; i < C::kKeys / 16; ++i) {
      Weighted<kWidth>::add(Float{}, o, p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3],
                            b + i * (2 * S::kValueGroup / 16), i > 0 ? 1 : adds);
    }
    commit_products();
  }

  // Weights as a word of an operand.
  __device__ __forceinline__ unsigned word_of(int i) const {
    return pair(Float{}, s[2 * i], s[2 * i + 1]);
  }
};

// 8-bit floats: the keys of a column of values are adjacent.
template <class Base>
struct ValuesOf8Bits : Base {
  using C = typename Base::C;
  using Float = typename Base::Float;
  using S = typename Base::S;
  using Base::Base;
  using Base::stages, Base::value, Base::adds, Base::o, Base::p, Base::s, Base::kWidth;

  __device__ __forceinline__ void weigh_values() {
    constexpr int kSteps = S::kValueRow / 32;  // of a panel
    const auto b = matrix<S::kValueRow / 2>(stages.value(value.stage), 8 * S::kValueRow, 16);
    pin(o);
    pin(p);
    begin_products();
#pragma unroll
    for (int i = 0; i < C::kKeys / 32; ++i) {
      WeightedOf8Bits<kWidth>::add(Float{}, o, p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3],
                                   b + i / kSteps * (S::kValuePanel / 16) + i % kSteps * 2,
                                   i > 0 ? 1 : adds);
    }
    commit_products();
  }

  // A word has the weights of a row in 16 columns, in the order in which transposed_values.cuh
  // stores keys.
  __device__ __forceinline__ unsigned word_of(int i) const {
    const int from = i / 2 * 8 + i % 2 * 2;
    return pair(Float{}, s[from], s[from + 1]) | pair(Float{}, s[from + 4], s[from + 5]) << 16;
  }
};

// Moves weights to the operand.
template <class Base>
struct PackedWeights : Base {
  using Base::Base;
  using Base::p, Base::word_of;

  template <int kCount>
  __device__ __forceinline__ void pack(unsigned (&words)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) words[i] = word_of(i);
  }

  // The weights of the block before are read until now. The assembler would see through a plain
  // copy, and serialize the products.
  template <int kCount>
  __device__ __forceinline__ void take(const unsigned (&packed)[kCount]) {
    pin(p);
    const int zero = unknown(0);
#pragma unroll
    for (int i = 0; i < kCount; ++i) p[i] = packed[i] | zero;
  }
};

}  // namespace kernels
