// Sums of dQ, which all blocks of keys of the backward add to.
#pragma once

#include "attn/backward_stages.cuh"
#include "attn/backward_tensors.cuh"
#include "attn/tile_runs.cuh"
#include "attn/transposed.cuh"

namespace kernels {

// Adds what this warp has, or hands it to the thread of query_adder.cuh.
template <class Base>
struct QuerySums : Base {
  using C = typename Base::C;
  using Base::Base;
  using Base::tensors, Base::stages, Base::group, Base::dq, Base::kParts, Base::kHalves,
      Base::kSumRows, Base::lane, Base::warp, Base::panels_of, Base::first_panel, Base::pin_queries;

  // Adds a part of dQ of a step to the sums, or, if they are ordered, hands it over. 16 columns of
  // 8 rows are registers of a warp: float4 `lane` has columns lane / 4 and 8 further, each of rows
  // 2 (lane % 4) and the next.
  template <int kPart>
  __device__ __forceinline__ void add_queries(unsigned step) {
    if (tensors.query_sums == nullptr) return;
    const int columns = first_panel(kPart) * 4 + warp();
    const int first = kHalves ? group * kSumRows : 0;
    if constexpr (kPart == 0) wait_for_sums_to_be_empty(step);
#pragma unroll
    for (int panel = 0; panel < panels_of(kPart); ++panel) {
      const unsigned to = stages.sums(columns + panel * 4) + first * 64 + lane() * 16;
      const auto& c = dq[panel];
#pragma unroll
      for (int j = 0; j < kSumRows / 8; ++j) {
        store_shared(to + j * 512, c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3]);
      }
    }
    if constexpr (C::kOrdered && kPart < kParts - 1) return;
    publish_writes();
    __syncwarp();
    if (lane() != 0) return;
    if constexpr (C::kOrdered)
      arrive(stages.sums_full());
    else
      add_columns<kPart>(step, columns, first);
  }
  __device__ __forceinline__ void wait_for_sums_to_be_empty(unsigned step) const {
    if constexpr (C::kOrdered) {
      wait(empty_of(stages.sums_full()), step & 1 ^ 1);
    } else {
      if (lane() == 0) wait_for_reads();
      __syncwarp();
    }
  }
  // Adds, by one lane, what its warp stored: no warp waits for another.
  template <int kPart>
  __device__ __forceinline__ void add_columns(unsigned step, int columns, int first) const {
    const int row = (int)(load_shared(stages.step_words(step)) & kKeyBits);
    if (row >= C::kRows) return;
    const int head = (int)load_shared(stages.step_words(step) + 4);
    const long long place =
        ((long long)head * (C::kDepth / 16) + columns) * C::kPaddedRows + row + first;
#pragma unroll
    for (int panel = 0; panel < panels_of(kPart); ++panel) {
      add_floats(tensors.query_sums + (place + panel * 4 * C::kPaddedRows) * 16,
                 stages.sums(columns + panel * 4) + first * 64, kSumRows * 64);
    }
  }

  // Begins a part of dQ, after the part before.
  template <int kPart>
  __device__ __forceinline__ void begin_part(unsigned step) {
    wait_for_products<0>();
    pin_queries();
    add_queries<kPart - 1>(step);
    this->template multiply_slopes<kPart>(step & 1);
  }
};

}  // namespace kernels
