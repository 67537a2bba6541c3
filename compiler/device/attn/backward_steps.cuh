// Steps of the backward: a block of rows each.
#pragma once

#include "attn/backward_group.cuh"

namespace kernels {

// Steps of warp groups with keys of their own.
template <class Base>
struct StepsOfBoth : Base {
  using C = typename Base::C;
  using Base::Base;
  using Base::stages, Base::steps, Base::s, Base::dp, Base::p, Base::ds, Base::dk, Base::dv,
      Base::release, Base::parity_of, Base::multiply_keys, Base::multiply_gradients,
      Base::add_product, Base::pin_queries, Base::weigh, Base::make_slopes, Base::learn;

  // Scores of 128 rows take the registers of weights that a product still reads.
  static constexpr bool kEndsWeights = C::kBlockRows > 64;

  template <Role kRole, bool kPrevious, bool kNext>
  __device__ __forceinline__ void step() {
    const unsigned n = steps & 1, before = n ^ 1;
    wait(stages.gradient_full(n), parity_of(steps));
    wait_for_products<0>();
    pin(s);
    multiply_gradients(n);
    weigh(n);
    add_product(dv, p, stages.gradient(n), kPrevious);
    wait(empty_of(stages.slope_full(n)), parity_of(steps) ^ 1);
    wait_for_products<kEndsWeights ? 0 : 1>();
    pin(dp);
    if constexpr (kEndsWeights) pin(dv);
    make_slopes(n);
    add_product(dk, ds, stages.query(n), kPrevious);
    learn();
    if constexpr (!kEndsWeights) {
      wait_for_products<1>();
      pin(dv);
    }
    release(stages.gradient_full(n));
    if constexpr (kPrevious) {
      wait(stages.slope_full(before), parity_of(steps - 1));
      this->template multiply_slopes<0>(before);
    }
    ++steps;
    if constexpr (kNext) {
      multiply_keys();
    }
    wait_for_products<kPrevious + kNext>();
    pin(dk);
    release(stages.query_full(n));
    if constexpr (kPrevious) {
      wait_for_products<kNext>();
      pin_queries();
      release(stages.slope_full(before));
      this->template add_queries<0>(steps - 2);
    }
  }
};

// Steps of warp groups that have the same keys.
template <class Base>
struct StepsOfShares : Base {
  using C = typename Base::C;
  using Base::Base;
  using Base::stages, Base::steps, Base::s, Base::dp, Base::p, Base::ds, Base::dk, Base::dv,
      Base::kParts, Base::release, Base::parity_of, Base::multiply_keys, Base::multiply_gradients,
      Base::add_product, Base::pin_queries, Base::weigh, Base::make_slopes, Base::learn;

  template <Role kRole, bool kPrevious, bool kNext>
  __device__ __forceinline__ void step() {
    if constexpr (kRole == Role::keys)
      step_of_keys<kPrevious, kNext>();
    else
      step_of_values<kPrevious, kNext>();
  }

  template <bool kPrevious, bool kNext>
  __device__ __forceinline__ void step_of_keys() {
    const unsigned n = steps & 1;
    wait(stages.gradient_full(n), parity_of(steps));
    wait_for_products<0>();
    pin(s);
    multiply_gradients(n);
    weigh(n);
    wait(empty_of(stages.slope_full(n)), parity_of(steps) ^ 1);
    wait_for_products<0>();
    pin(dp);
    make_slopes(n);
    release(stages.gradient_full(n));
    add_product(dk, ds, stages.query(n), kPrevious);
    learn();
    ++steps;
    if constexpr (kNext) multiply_keys();
    wait_for_products<kNext>();
    pin(dk);
    release(stages.query_full(n));
  }

  template <bool kPrevious, bool kNext>
  __device__ __forceinline__ void step_of_values() {
    const unsigned n = steps & 1, before = n ^ 1;
    wait_for_products<0>();
    pin(s);
    if constexpr (kPrevious) {
      wait(stages.slope_full(before), parity_of(steps - 1));
      this->template multiply_slopes<0>(before);
    }
    weigh(n);
    release(stages.query_full(n));
    if constexpr (kPrevious && kParts > 1) this->template begin_part<1>(steps - 1);
    wait(stages.gradient_full(n), parity_of(steps));
    add_product(dv, p, stages.gradient(n), kPrevious);
    ++steps;
    if constexpr (kNext) multiply_keys();
    wait_for_products<kNext>();
    pin_queries(), pin(dv);
    release(stages.gradient_full(n));
    if constexpr (kPrevious) {
      release(stages.slope_full(before));
      this->template add_queries<kParts - 1>(steps - 2);
    }
  }
};

}  // namespace kernels
