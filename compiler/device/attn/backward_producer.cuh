// The thread of the backward kernel that copies: its layers, each of which uses those below it.
#pragma once

#include "attn/backward_copies.cuh"
#include "attn/backward_order.cuh"

namespace kernels {

template <class C, class E, class L>
using RowCopierLayers = RowCopies<StepsOfRows<C, E, L>>;

template <class C, class E, class L>
struct RowProducer : RowCopierLayers<C, E, L> {
  using Base = RowCopierLayers<C, E, L>;
  using S = typename Base::S;
  using Base::kStepsLeft, Base::kTail;
  using Base::set, Base::get, Base::parts, Base::with_item, Base::has_no_keys, Base::first_step,
      Base::next_step, Base::last_head, Base::copy_queries, Base::copy_gradients, Base::copy_keys;
  using Base::stages, Base::tensors, Base::steps, Base::kFirstStep;

  __device__ void run() {
    static_assert(S::kStages == 2, "steps % 2");
    if constexpr (S::kClears) set(kTail, 0);
    int n = atomicAdd(tensors.counter, 1);
    while (n < C::kItems + parts()) {
      copy_item(n);
      n = atomicAdd(tensors.counter, 1);
    }
    wait(empty_of(stages.keys_full()), steps >> 31 ^ 1);
    store_shared(stages.item_words(), kEndOfStream);
    store_shared(stages.step_words(steps), kEndOfStream);
    arrive(stages.keys_full());
    if constexpr (C::kRandom)
      arrive(empty_of(stages.drawn_full(steps)));
    else if constexpr (S::kClears)
      stages.tails().end(get(kTail));
  }

  __device__ void copy_item(int n) {
    with_item(n, [this](const Part& of, const Tile& tile) { copy_item(of, tile); });
  }

  __device__ __forceinline__ void copy_item(const Part& of, const Tile& tile) {
    if (has_no_keys(tile, of.unit / C::kKeyHeads)) return;
    int head;
    unsigned rows = first_step(of, tile, head);
    steps |= kFirstStep;
#pragma unroll 1
    for (;;) {
      copy_queries(head, rows);
      copy_gradients();
      // The stages of the first step are empty before those of the keys.
      if (steps & kFirstStep) copy_keys();
      const int left = get(kStepsLeft) - 1;
      if (left == 0) break;
      set(kStepsLeft, left);
      rows = load_shared(stages.step_words(steps)) & ~kTailBits, head = last_head();
      ++steps;
      next_step(rows, head);
    }
    ++steps;
    steps ^= 1u << 31;
  }
};

}  // namespace kernels
