// Products of the forward: scores of a block of queries and keys.
#pragma once

#include "attn/forward_stages.cuh"
#include "attn/wgmma.cuh"
#include "attn/which.cuh"

namespace kernels {

// Scores, and what is common to products with values of all kinds.
template <class Base>
struct ForwardProducts : Base {
  using C = typename Base::C;
  using Float = typename Base::Float;
  using S = typename Base::S;
  using Base::Base;
  using Base::stages, Base::group, Base::query, Base::key, Base::value, Base::o, Base::s,
      Base::kOf8Bits, Base::release;

  static constexpr int kStepsOfKeys = C::kDepth * S::kElement / 32;

  __device__ __forceinline__ void multiply_keys() { multiply_steps<0, kStepsOfKeys>(s); }

  // Whether few instructions describe the matrices of a step: others are between these.
  static constexpr bool kShort = C::kShares > 1;

  // Issues steps of the product with the next keys, as a group.
  template <int kFrom, int kTo, int kCount>
  __device__ __forceinline__ void multiply_steps(float (&scores)[kCount]) {
    constexpr int kSteps = S::kKeyRow / 32;  // of a panel
    int rows_of_group = group * 64 * S::kKeyRow;
    // So that what describes each of many steps is not kept in registers.
    if constexpr (C::kDepth > (C::kSplits > 1 || C::kScheduled ? 192 : 256))
      rows_of_group = unknown(rows_of_group);
    const auto a =
        matrix<S::kKeyRow / 2>(stages.query(query.stage) + rows_of_group, 8 * S::kKeyRow, 16);
    const auto b = matrix<S::kKeyRow / 2>(stages.key(key.stage), S::kKeyGroup, 16);
    using Product = typename Which<kOf8Bits, ScoresOf8Bits<C::kKeys>, Scores<C::kKeys>>::Type;
    if constexpr (kFrom == 0) pin(scores);
    begin_products();
#pragma unroll
    for (int i = kFrom; i < kTo; ++i) {
      const unsigned of_queries = i / kSteps * (S::kQueryPanel / 16) + i % kSteps * 2;
      const unsigned of_keys = i / kSteps * (S::kKeyPanelStride / 16) + i % kSteps * 2;
      if constexpr (kShort)
        Product::add(Float{}, scores, behind(a, of_queries), behind(b, of_keys), i > 0);
      else
        Product::add(Float{}, scores, a + of_queries, b + of_keys, i > 0);
    }
    commit_products();
  }

  __device__ __forceinline__ void wait_for_values() {
    wait(stages.value_full(value.stage), value.parity);
    if constexpr (C::kGatherValues && !C::kWidens) publish_writes();
  }

  __device__ __forceinline__ void take_products() {
    wait_for_products<0>();
    pin(o);
    release(stages.value_full(value.stage));
    value.next();
  }
};

}  // namespace kernels
