// Threads of the backward kernel of warp groups that compute: their layers, each of which uses
// those below it.
#pragma once

#include "attn/backward_layers.cuh"
#include "attn/backward_products.cuh"
#include "attn/backward_steps.cuh"
#include "attn/backward_store.cuh"
#include "attn/query_sums.cuh"

namespace kernels {

template <class C, class E>
struct LayersOfGroup {
  using Thread = ThreadOfGroup<BackwardThread<C, E>>;
  using Learned = typename BackwardLayers<BackwardProducts<Thread>>::Learned;
  using Stored = StoredKeys<QuerySums<Learned>>;
  using Steps = typename Which<Thread::kShared, StepsOfShares<Stored>, StepsOfBoth<Stored>>::Type;
};

// A thread of a warp group.
template <class C, class E>
struct Gradients : LayersOfGroup<C, E>::Steps {
  using Base = typename LayersOfGroup<C, E>::Steps;
  using S = typename Base::S;
  using Base::Base;
  using Base::lane, Base::warp, Base::shared_word, Base::release, Base::parity_of,
      Base::multiply_keys, Base::pin_queries, Base::wait_for_sums_to_be_empty;
  using Base::stages, Base::tensors, Base::expressions, Base::group, Base::steps, Base::key,
      Base::dk, Base::dv, Base::kShared, Base::kParts;

  __device__ __forceinline__ void run() {
#pragma unroll
    for (int i = 0; i < C::kDepth / 2; ++i) dk[i] = 0;
#pragma unroll
    for (int i = 0; i < C::kWidth / 2; ++i) dv[i] = 0;
    if constexpr (!kShared)
      run_as<Role::both>();
    else if (group == 0)
      run_as<Role::keys>();
    else
      run_as<Role::values>();
  }

  template <Role kRole>
  __device__ __forceinline__ void run_as() {
    while (begin_item()) {
      int left = (int)shared_word(stages.item_words() + 8) - 2;
      multiply_keys();
      wait(stages.values_full(), steps >> 31);
      this->template step<kRole, false, true>();
#pragma unroll 1
      for (; left > 0; --left) this->template step<kRole, true, true>();
      this->template step<kRole, true, false>();
      finish_item<kRole>();
    }
    if constexpr (C::kNarrow && kRole != Role::values) this->store_largest_slope();
    if (tensors.query_sums == nullptr || kRole == Role::keys) return;
    wait_for_sums_to_be_empty(steps);
    if (lane() != 0) return;
    if constexpr (C::kOrdered)
      arrive(stages.sums_full());
    else
      wait_for_sums();
  }

  // False at the end of the stream.
  __device__ __forceinline__ bool begin_item() {
    wait(stages.keys_full(), steps >> 31);
    if (shared_word(stages.item_words()) == kEndOfStream) return false;
    key = shared_word(stages.item_words() + 4) * S::kKeys + warp() * 16 + lane() / 4;
    if (!kShared) key += group * 64;
    return true;
  }

  template <Role kRole>
  __device__ __forceinline__ void finish_item() {
    const unsigned last = steps - 1;
    if constexpr (kRole != Role::keys) {
      wait(stages.slope_full(last & 1), parity_of(last));
      this->template multiply_slopes<0>(last & 1);
      if constexpr (kParts > 1) this->template begin_part<1>(last);
    }
    wait_for_products<0>();
    if constexpr (kRole != Role::keys) pin_queries(), pin(dv);
    if constexpr (kRole != Role::values) pin(dk);
    const int unit = shared_word(stages.item_words());
    if constexpr (kRole != Role::keys) release(stages.slope_full(last & 1));
    release(stages.keys_full());
    if constexpr (kRole != Role::keys) {
      this->template add_queries<kParts - 1>(last);
      this->store_dv(unit);
    }
    if constexpr (kRole != Role::values) this->store_dk(unit);
    steps ^= 1u << 31;
  }
};

}  // namespace kernels
