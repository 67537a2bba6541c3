// Operations of expressions in f32, for kernels that compute them for each score. A class of
// expressions inherits them: its unqualified calls find these before those of values.cuh and CUDA.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
constexpr float kLowest = -3.402823466e38f;  // finite; scores near it count as -inf

// 2^x for |x| up to 126; NaN of NaN. Relative error below 2^-13: the polynomial is the best of its
// degree for 2^f with |f| <= 0.5.
ATTN_INLINE float power_of_two_by_polynomial(float x) {
  constexpr float kRounds = 12582912;  // 1.5 * 2^23: the low bits of a sum are those of an integer
  const float shifted = x + kRounds, f = x - (shifted - kRounds);
  const float power = fmaf(fmaf(fmaf(0.05517167f, f, 0.24261112f), f, 0.69326099f), f, 0.99992807f);
  return power * __uint_as_float((__float_as_uint(shifted) << 23) + 0x3f800000u);
}

// 1 / (1 + exp(-x)) by a tanh, in half of the time; its relative error is below 2^-11 for x from
// kLeastOfFastSigmoid on, below which terms nearly cancel.
constexpr float kLeastOfFastSigmoid = -8;
ATTN_INLINE float fast_sigmoid(float x) { return fmaf(fast_tanh(0.5f * x), 0.5f, 0.5f); }

// A bound tensor, whose alignment lets the compiler read neighbours together.
template <typename T>
ATTN_INLINE const T* aligned(const T* tensor) {
  return static_cast<const T*>(__builtin_assume_aligned(tensor, 16));
}

struct Reals {
  // What makes weights of scores; what a kernel's expressions say hides these (forward.cuh).
  static constexpr bool kLinear = false;
  // Linear weights are the silus of scores, times kFactor.
  static constexpr bool kSilu = false;
  static constexpr float kFactor = 1;
  static constexpr bool kQuotient = false, kExponential = false, kUnit = false;
  // Terms of a score, and parts of learned tensors, that follow from features of the score, turn by
  // turn (codegen/turns.h).
  static constexpr int kTurnsOfScore = 0, kTurnsOfParts = 0;
  static constexpr bool kByFeatures = false;
  // Whether something becomes of each element of o (forward_epilogue.cuh).
  static constexpr bool kEpilogue = false;

  ATTN_INLINE float attn_bf16(unsigned short bits) { return BF16::widen(bits); }
  ATTN_INLINE float attn_f16(unsigned short bits) { return F16::widen(bits); }
  ATTN_INLINE float attn_min(float x, float y) { return x != x || x < y ? x : y; }
  ATTN_INLINE float attn_max(float x, float y) { return x != x || x > y ? x : y; }

  // Functions of few instructions; relative errors: tanh 2^-11, others about 2^-21. Sine and cosine
  // have absolute errors of 2^-21, for |x| up to 2^15.
  ATTN_INLINE float exp2(float x) { return power_of_two(x); }
  ATTN_INLINE float exp(float x) { return power_of_two(x * kLog2E); }
  ATTN_INLINE float tanh(float x) { return fast_tanh(x); }
  ATTN_INLINE float attn_sigmoid(float x) { return reciprocal(1 + exp(-x)); }
  ATTN_INLINE float sin(float x) { return __sinf(within_pi(x)); }
  ATTN_INLINE float cos(float x) { return __cosf(within_pi(x)); }
  ATTN_INLINE float tan(float x) { return sin(x) / cos(x); }

 private:
  // x without multiples of 2 pi, which is the sum of two constants.
  ATTN_INLINE float within_pi(float x) {
    const float turns = rintf(x * 0.15915494f);
    return fmaf(turns, 1.7484556e-7f, fmaf(turns, -6.2831855f, x));
  }
};

// Whether a weight depends on its own score alone.
template <class E>
constexpr bool kPointwise = E::kSigmoid || E::kLinear;

}  // namespace kernels
