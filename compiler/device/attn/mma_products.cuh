// Products of the forward by warps (mma.cuh): scores, and what weights make of values. A warp has
// one or two strips of 16 rows of queries; what it reads of keys and values serves both.
#pragma once

#include "attn/forward_stages.cuh"
#include "attn/forward_tensors.cuh"
#include "attn/mma_panels.cuh"

namespace kernels {

// A strip's operands and sums: queries in registers where these suffice, or those of a step.
template <class Base>
struct ProductsOfStrip : Base {
  using C = typename Base::C;
  using Float = typename Base::Float;
  using S = typename Base::S;
  using Base::stages, Base::group, Base::lane, Base::s, Base::o, Base::p, Base::kScores;
  static constexpr int kSteps = C::kDepth / 16;
  // Steps whose queries stay in registers.
  static constexpr int kHeld = C::kHeldQueries;

  unsigned query_at;  // of the lane, in the tile
  unsigned queries[kHeld < kSteps ? kHeld + 1 : kSteps][4];

  __device__ __forceinline__ ProductsOfStrip(const S& stages_, const ForwardTensors& tensors_,
                                             const typename Base::E& expressions_, int group_)
      : Base(stages_, tensors_, expressions_, group_),
        query_at(stages_.query(0) + (group_ * 64 + (threadIdx.x / 32 & 3) * 16) * S::kKeyRow +
                 lane_offset<C::kDepthPanel>(lane & 15, lane >> 4)) {}

  // Takes the queries of another stage.
  __device__ __forceinline__ void move_queries(int stages_further) {
    query_at += stages_further * S::kQueryBytes;
  }
  // Reads all of them, if they stay in registers.
  __device__ __forceinline__ void hold_queries() {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) read_queries(i);
  }
  // Reads those of a step, unless they are there.
  __device__ __forceinline__ void take_queries(int i) {
    if (i >= kHeld) read_queries(i);
  }

  // Adds a step to the scores of 16 keys, from score 8 n on.
  __device__ __forceinline__ void add_scores(int i, int n, const unsigned (&keys)[4]) {
    const unsigned* const a = queries[i < kHeld ? i : kHeld];
    multiply(Float{}, s, 8 * n, a, keys[0], keys[1]);
    multiply(Float{}, s, 8 * n + 4, a, keys[2], keys[3]);
  }
  // Adds 16 columns of the values of 16 keys to o.
  __device__ __forceinline__ void add_values(int i, int n, const unsigned (&values)[4]) {
    multiply(Float{}, o, 8 * n, p + 4 * i, values[0], values[1]);
    multiply(Float{}, o, 8 * n + 4, p + 4 * i, values[2], values[3]);
  }

  // Weights as a word of an operand.
  __device__ __forceinline__ unsigned word_of(int i) const {
    return pair(Float{}, s[2 * i], s[2 * i + 1]);
  }

 private:
  __device__ __forceinline__ void read_queries(int i) {
    load_matrices(queries[i < kHeld ? i : kHeld],
                  at_step<C::kDepthPanel>(query_at, i, S::kQueryPanel));
  }
};

// The strips of a warp: one or two.
template <class Strip_, int kStrips>
struct Strips {
  using Strip = Strip_;
  Strip first;

  template <class... Arguments>
  __device__ __forceinline__ Strips(int group, const Arguments&... arguments)
      : first(arguments..., group) {}
  template <class Do>
  __device__ __forceinline__ void each(const Do& work) {
    work(first);
  }
};
template <class Strip_>
struct Strips<Strip_, 2> {
  using Strip = Strip_;
  Strip first, second;

  template <class... Arguments>
  __device__ __forceinline__ Strips(int group, const Arguments&... arguments)
      : first(arguments..., 2 * group), second(arguments..., 2 * group + 1) {}
  template <class Do>
  __device__ __forceinline__ void each(const Do& work) {
    work(first), work(second);
  }
};

// Products of a warp's strips with what is in a stage.
template <class C, class Rows>
struct ProductsOfWarp {
  using S = Stages<C>;
  using Strip = typename Rows::Strip;
  const S stages;
  const unsigned key_at, value_at;  // of the lane, in a block

  __device__ __forceinline__ explicit ProductsOfWarp(const S& stages_)
      : stages(stages_),
        key_at(lane_offset<C::kDepthPanel>((threadIdx.x & 7) + (threadIdx.x >> 4 & 1) * 8,
                                           threadIdx.x >> 3 & 1)),
        value_at(lane_offset<C::kWidthPanel>(threadIdx.x & 15, threadIdx.x >> 4 & 1)) {}

  // Makes scores of keys.
  __device__ __forceinline__ void multiply_keys(Rows& rows, int stage) const {
    const unsigned at = stages.key(stage) + key_at;
    rows.each([](Strip& strip) {
#pragma unroll
      for (int i = 0; i < Strip::kScores; ++i) strip.s[i] = 0;
    });
#pragma unroll
    for (int i = 0; i < C::kDepth / 16; ++i) {
      rows.each([i](Strip& strip) { strip.take_queries(i); });
      const unsigned from = at_step<C::kDepthPanel>(at, i, S::kKeyPanel);
#pragma unroll
      for (int n = 0; n < C::kKeys / 16; ++n) {
        unsigned keys[4];
        load_matrices(keys, from + n * 16 * S::kKeyRow);
        rows.each([&](Strip& strip) { strip.add_scores(i, n, keys); });
      }
    }
  }

  // Adds weighed values to o.
  __device__ __forceinline__ void weigh_values(Rows& rows, int stage) const {
    const unsigned at = stages.value(stage) + value_at;
#pragma unroll
    for (int i = 0; i < C::kKeys / 16; ++i) {
#pragma unroll
      for (int n = 0; n < C::kWidth / 16; ++n) {
        unsigned values[4];
        load_transposed(values,
                        at_step<C::kWidthPanel>(at, n, S::kValuePanel) + i * 16 * S::kValueRow);
        rows.each([&](Strip& strip) { strip.add_values(i, n, values); });
      }
    }
  }
};

}  // namespace kernels
