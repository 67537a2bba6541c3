// Products of the backward.
#pragma once

#include "attn/backward_group.cuh"
#include "attn/transposed.cuh"
#include "attn/wgmma.cuh"

namespace kernels {

// S^T, dP^T, dV, dK, dQ^T.
template <class Base>
struct BackwardProducts : Base {
  using C = typename Base::C;
  using Float = typename Base::Float;
  using S = typename Base::S;
  using Base::Base;
  using Base::stages, Base::group, Base::steps, Base::s, Base::dp, Base::dq, Base::kShared,
      Base::kScores, Base::kPanels, Base::kParts, Base::kPanelsOfPart, Base::kHalves,
      Base::kSumRows, Base::parity_of;

  __device__ __forceinline__ void pin_queries() {
#pragma unroll
    for (int panel = 0; panel < kPanelsOfPart; ++panel) pin(dq[panel]);
  }

  // S^T of the current step, once it is there.
  __device__ __forceinline__ void multiply_keys() {
    wait(stages.query_full(steps & 1), parity_of(steps));
    multiply<C::kDepth>(s, stages.keys(), stages.query(steps & 1));
  }
  // dP^T
  __device__ __forceinline__ void multiply_gradients(int n) {
    multiply<C::kWidth>(dp, stages.values(), stages.gradient(n));
  }
  template <int kColumns>
  __device__ __forceinline__ void multiply(float (&c)[kScores], unsigned of_keys,
                                           unsigned of_rows) const {
    const auto x = matrix(unknown(of_keys + (kShared ? 0 : group * 64 * 128)), 1024, 16);
    const auto y = matrix(unknown(of_rows), 1024, 16);
    begin_products();
    Products<C::kBlockRows, false>::first(Float{}, c, x, y);
#pragma unroll
    for (int i = 1; i < kColumns / 16; ++i) {
      Products<C::kBlockRows, false>::add(Float{}, c, x + i / 4 * (S::kKeys * 128 / 16) + i % 4 * 2,
                                          y + i / 4 * (C::kBlockRows * 128 / 16) + i % 4 * 2);
    }
    commit_products();
  }

  // dV += P^T dO, dK += dS^T Q
  template <int kOutputs>
  __device__ __forceinline__ void add_product(float (&c)[kOutputs], unsigned (&x)[kScores / 2],
                                              unsigned of_rows, bool adds) const {
    const auto y = matrix(unknown(of_rows), 1024, C::kBlockRows * 128);
    pin(c), pin(x);
    begin_products();
#pragma unroll
    for (int i = 0; i < C::kBlockRows / 16; ++i) {
      Weighted<2 * kOutputs>::add(Float{}, c, x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3],
                                  y + i * 128, i > 0 || adds);
    }
    commit_products();
  }

  static __device__ constexpr int panels_of(int part) {
    return part < kParts - 1 ? kPanelsOfPart : kPanels - part * kPanelsOfPart;
  }
  // The first of a part.
  __device__ __forceinline__ int first_panel(int part) const {
    return kShared ? part * kPanelsOfPart : kHalves ? 0 : group;
  }

  // dQ^T = K^T dS^T, of all keys.
  template <int kPart>
  __device__ __forceinline__ void multiply_slopes(int n) {
    const unsigned from = stages.keys() + first_panel(kPart) * (S::kKeys * 128);
    const unsigned rows = kHalves ? group * (kSumRows * 128) : 0;
    const auto y = matrix(unknown(stages.slope(n) + rows), 1024, 16);
    begin_products();
#pragma unroll
    for (int panel = 0; panel < panels_of(kPart); ++panel) {
      const auto x = matrix(unknown(from + panel * (S::kKeys * 128)), 1024, S::kKeys * 128);
      Products<kSumRows, true>::first(Float{}, dq[panel], x, y);
#pragma unroll
      for (int i = 1; i < S::kKeys / 16; ++i) {
        Products<kSumRows, true>::add(Float{}, dq[panel], x + i * 128,
                                      y + i / 4 * (C::kBlockRows * 128 / 16) + i % 4 * 2);
      }
    }
    commit_products();
  }
};

}  // namespace kernels
