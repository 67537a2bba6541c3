// A thread of a backward over few keys (mma_short_backward.cuh): what it knows of its step, and of
// the row that it brings to shared memory.
#pragma once

#include "attn/backward_thread.cuh"
#include "attn/mma_backward_stages.cuh"
#include "attn/mma_short_steps.cuh"

namespace kernels {

// What a row has besides its columns, as it was read: nothing waits for it until it is stored. An
// lse of -inf is that of an empty row, or of none.
struct ValuesOfRow {
  float lse, lse_gradient;
};

template <class Base>
struct ThreadOfShort : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using S = typename Base::S;
  using RowBlock = typename Base::RowBlock;
  using Base::Base;
  using Base::stages, Base::tensors, Base::expressions, Base::lane, Base::row_group,
      Base::kRowsOfWarp;

  StepOfUnit now;
  int key_stage = 0;  // of its keys

  __device__ __forceinline__ unsigned keys_of_item() const { return stages.keys(key_stage); }
  __device__ __forceinline__ unsigned values_of_item() const { return stages.values(key_stage); }

  __device__ __forceinline__ unsigned deltas_of(int) const { return stages.deltas_of_step(); }

  __device__ __forceinline__ RowBlock rows_of(unsigned) const {
    const unsigned first = now.row + row_group() * kRowsOfWarp;
    return {first | (E::kMask ? kMasked : 0), now.head, (lane() & 3) * 2};
  }

  // Reads what this thread's row of a step has; others than the first kBlockRows have none.
  __device__ __forceinline__ ValuesOfRow load_values(const StepOfUnit& of) const {
    static_assert(S::kThreads >= C::kBlockRows, "a thread for each row");
    const int b = of.head / C::kHeads, h = of.head % C::kHeads, q = of.row + (int)threadIdx.x;
    if ((int)threadIdx.x >= C::kBlockRows || q >= expressions.queries(b)) return {nothing(), 0};
    if (kPointwise<E>) return {0, 0};
    const long long at = C::Statistics::place(tensors.row_starts, b, h % C::kHeadsOfClass, q) +
                         h / C::kHeadsOfClass * C::kStatisticsClass;
    return {tensors.lse[at], tensors.d_lse == nullptr ? 0.0f : tensors.d_lse[at]};
  }
  __device__ __forceinline__ void store_values(int n, const ValuesOfRow& row) const {
    if ((int)threadIdx.x >= C::kBlockRows) return;
    const bool empty = row.lse == nothing();
    const float exponent = empty ? nothing() : -row.lse * kLog2E;
    const float gradient = empty ? 0.0f : row.lse_gradient;
    store_shared(stages.exponents(n) + threadIdx.x * 4, __float_as_uint(exponent));
    store_shared(stages.lse_gradients(n) + threadIdx.x * 4, __float_as_uint(gradient));
  }
};

}  // namespace kernels
