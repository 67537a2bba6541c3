// Queries that become 16-bit floats of 11 bits, times the scale of their keys, as products with
// widened keys take them (kConvertsQueries).
//
// Keys and values of 8 bits fit f16, and one instruction widens two of e4m3 to it; to bf16 it takes
// four. Queries fit if their rows are divided by powers of 2, which scores are multiplied by.
#pragma once

#include "attn/forward_stages.cuh"
#include "attn/tile_rows.cuh"
#include "attn/widening.cuh"

namespace kernels {

// Without it.
template <class Base>
struct QueriesAsTheyAre : Base {
  using Base::Base;
  __device__ __forceinline__ void convert_queries() {}
};

template <class Base>
struct ConvertedQueries : Base {
  using C = typename Base::C;
  using S = typename Base::S;
  using Float = typename Base::Float;
  using Base::Base;
  using Base::expressions, Base::stages, Base::query, Base::tile_words, Base::group, Base::lane,
      Base::s, Base::kScores, Base::rows_of;

  // Lanes that have a row of a panel, 16 bytes each, and rows of a warp at once.
  static constexpr int kOfRow = S::kKeyRow / 16, kAtOnce = 32 / kOfRow, kPasses = 16 / kAtOnce;
  float power[2] = {1, 1};  // of 2, that the rows of this thread were divided by
  int divides = 0;          // whether one of the warp was

  // In its place, before the first product of a tile. All warps of the group have the same tile.
  __device__ __forceinline__ void convert_queries() {
    const TileRows<C> rows = rows_of(tile_words);
    const float scale = expressions.query_factor(rows.b, rows.h[0]);
    const unsigned first = stages.query(query.stage) + lane % kOfRow * 16 +
                           (group * 64 + (threadIdx.x / 32 & 3) * 16 + lane / kOfRow) * S::kKeyRow;
    float powers[kPasses];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
      powers[pass] = convert_rows(first + pass * kAtOnce * S::kKeyRow, scale);
#pragma unroll
    for (int r = 0; r < 2; ++r) power[r] = of_row(powers, lane / 4 + 8 * r);
    divides = __any_sync(~0u, power[0] != 1 || power[1] != 1);
    publish_writes();
    sync_named(4 + group, 128);
  }

  __device__ __forceinline__ void scale_scores() {
    Base::scale_scores();
    if (!divides) return;
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] *= power[i / 2 & 1];
  }

 private:
  // A row of some lanes. Returns the power of 2 that it was divided by.
  __device__ __forceinline__ float convert_rows(unsigned at, float scale) const {
    using Queries = typename C::Queries;
    uint4 words[S::kDepthPanels];
    unsigned largest = 0;
#pragma unroll
    for (int panel = 0; panel < S::kDepthPanels; ++panel) {
      words[panel] = load_vector(at + panel * S::kQueryPanel);
      const uint4 all = words[panel];
      largest = max(largest,
                    max(max(size_of(all.x), size_of(all.y)), max(size_of(all.z), size_of(all.w))));
    }
#pragma unroll
    for (int other = 1; other < kOfRow; other *= 2)
      largest = max(largest, __shfl_xor_sync(~0u, largest, other));
    const float of = divisor(floats_of(Queries{}, largest).x * scale), factor = scale / of;
#pragma unroll
    for (int panel = 0; panel < S::kDepthPanels; ++panel) {
      const auto converted = [factor](unsigned word) {
        const float2 two = floats_of(Queries{}, word);
        return pair(Float{}, two.x * factor, two.y * factor);
      };
      const uint4 all = words[panel];
      store_vector(at + panel * S::kQueryPanel, make_uint2(converted(all.x), converted(all.y)),
                   make_uint2(converted(all.z), converted(all.w)));
    }
    return of;
  }
  // The larger of two floats without their signs, as bits.
  static __device__ __forceinline__ unsigned size_of(unsigned word) {
    return max(word & 0x7fff, word >> 16 & 0x7fff);
  }
  // 1 where all of the row's elements that matter are in f16; otherwise the power of 2 of its
  // largest, but for those near the ends of f32. Infinity and NaN stay what they are.
  static __device__ __forceinline__ float divisor(float largest) {
    constexpr float kLeast = 0x1p-6f, kMost = 0x1p15f;
    const float size = fabsf(largest);
    const unsigned exponent = __float_as_uint(size) >> 23;  // 127 more
    if (!(size > 0) || (size >= kLeast && size < kMost) || exponent == 255) return 1;
    return __uint_as_float(min(max(exponent, 2u), 252u) << 23);
  }
  static __device__ __forceinline__ float of_row(const float (&powers)[kPasses], int row) {
    float found = 1;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const float power = __shfl_sync(~0u, powers[pass], row % kAtOnce * kOfRow);
      if (row / kAtOnce == pass) found = power;
    }
    return found;
  }
};

}  // namespace kernels
