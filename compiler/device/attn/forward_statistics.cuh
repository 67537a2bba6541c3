// Statistics of rows of the forward: log-sum-exp, maxima, sums, the largest weight.
#pragma once

#include "attn/forward_tensors.cuh"
#include "attn/reals.cuh"

namespace kernels {

// Where they are stored, and what a row of o is multiplied by.
template <class Base>
struct ForwardStatistics : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using Range = typename Base::Range;
  using Base::Base;
  using Base::tensors, Base::expressions, Base::exponent, Base::kSecond, Base::kOf8Bits,
      Base::kKeepsLargest, Base::kFollows, Base::kWeightScale;

  // The largest of what a thread stores, as bits: of a weight and of o.
  struct Largest {
    unsigned weight = 0, output = 0;
  };

  // Where a maximum is an output, it is NaN if a score is. Elsewhere weights alone make NaN of o.
  static __device__ __forceinline__ float larger(float x, float y) {
    return C::kLazy ? fmaxf(x, y) : larger_or_nan(x, y);
  }

  // Bits of a magnitude; NaN is the largest.
  static __device__ __forceinline__ unsigned bits_of(float x) {
    return __float_as_uint(x) & 0x7fffffffu;
  }

  // What sums relative to one maximum are relative to another.
  __device__ __forceinline__ float factor_of(float from, float to) const {
    if (E::kBounded || from == to) return 1;
    return power_of_two(power_of(from) - reference_of(to));
  }
  __device__ __forceinline__ float reference_of(float largest) const {
    return largest == nothing() ? 0.0f : fmaxf(power_of(largest), kLowest);
  }
  // The power of 2 that a maximum stands for.
  __device__ __forceinline__ float power_of(float largest) const {
    return kFollows ? largest : largest * exponent;
  }

  // Statistics of a row: its largest score, the sum of its weights, and with kKeepsLargest the
  // largest of them.
  struct RowStatistics {
    float maximum, total, kept;
  };
  // Stores the statistics of a row, by one of its lanes. Returns what its o is to be multiplied by.
  __device__ __forceinline__ float finish_row(int b, int h, int q, RowStatistics of, bool stores,
                                              Largest& most) {
    const bool present = q < expressions.queries(b);
    float factor = E::kSilu ? E::kFactor : E::kLinear ? expressions.weight() : 1 / kWeightScale;
    if constexpr (kOf8Bits) {
      const float scale_of_weights =
          Range::weight_scale(tensors) * power_of_two(-Range::lowered_by(tensors));
      of.total /= scale_of_weights;
      if constexpr (kFollows)
        of.kept = power_of_two(of.kept * exponent - of.maximum);
      else
        of.kept /= scale_of_weights;
    }
    if constexpr (Range::kRaised > 0) of.total *= Range::kLowered;
    if constexpr (!kPointwise<E>) {
      factor = store_statistics(b, h, q, of.maximum, of.total, !kSecond && stores && exists(b, q),
                                present);
    }
    if constexpr (E::kQuotient) factor *= E::kFactorOfParts;
    if (!present) return 0;
    if constexpr (C::kAmaxOfWeights) {
      const float weight = (kKeepsLargest ? of.kept : 1) * factor * E::kKeptScale;
      if (exists(b, q)) most.weight = max(most.weight, bits_of(weight));
    }
    if constexpr (kOf8Bits) {
      return factor * power_of_two(Range::lowered_by(tensors)) * *tensors.descale_s *
             *tensors.descale_v;
    } else if constexpr (C::kNarrow) {  // weights have 16 bits, and are not scaled
      return factor * E::kKeptScale * (*tensors.scale_s * *tensors.descale_s) * *tensors.descale_v;
    } else {
      return factor * (E::kKeptScale * Range::kLowered);
    }
  }

  __device__ __forceinline__ bool exists(int b, int q) const {
    return q < (C::kThdO ? expressions.queries(b) : C::kRows);
  }

  // Where a batch begins in memory, whose batches and rows are this far apart.
  __device__ __forceinline__ long long first_of(int b, long long batch, long long row) const {
    if constexpr (C::kRowsOfCache > 1)
      return b / C::kRowsOfCache * batch + b % C::kRowsOfCache * row;
    return C::kThdO ? tensors.row_starts[b] * row : b * batch;
  }

  // Heads may be those of several classes of rows.
  __device__ __forceinline__ long long place_of_statistics(int b, int h, int q) const {
    const long long at =
        first_of(b, C::kStatisticsBatch, C::kStatisticsRow) + q * C::kStatisticsRow;
    if (C::kStatisticsClass == 0) return at + h * C::kStatisticsHead;
    return at + h % C::kHeadsOfClass * C::kStatisticsHead +
           h / C::kHeadsOfClass * C::kStatisticsClass;
  }

  // The logarithm of a sum of powers of 2, which is relative to the power `top`.
  static __device__ __forceinline__ float log_sum(float top, float total) {
    return (top + __log2f(total)) * kLn2;
  }

  // Returns what o is to be multiplied by.
  __device__ __forceinline__ float store_statistics(int b, int h, int q, float largest, float total,
                                                    bool stores, bool present) {
    const long long at = place_of_statistics(b, h, q);
    const bool empty = total == 0 || !present;  // not if it is NaN
    float top = empty ? nothing() : power_of(largest);
    const auto put = [&](float* to, float value) {
      if (to != nullptr && stores) to[at] = value;
    };
    put(tensors.max, top * kLn2);
    put(tensors.sum_exp, empty ? 0.0f : total);
    if constexpr (E::kSink) {
      put(tensors.lse_without_sink, empty ? nothing() : log_sum(top, total));
      const float sink = present ? expressions.sink(h) * kLog2E : nothing();
      const float higher = larger(top, sink);
      const float part = empty ? 0.0f : total * power_of_two(top - higher);
      total = sink == nothing() ? part : part + power_of_two(sink - higher);
      put(tensors.max_with_sink, higher * kLn2);
      put(tensors.sum_exp_with_sink, total);
      put(tensors.lse, present ? log_sum(higher, total) : nothing());
      return empty ? 0.0f : power_of_two(top - higher) / total;
    }
    put(tensors.lse, empty ? nothing() : log_sum(top, total));
    return empty ? 0.0f : 1.0f / total;
  }
};

}  // namespace kernels
