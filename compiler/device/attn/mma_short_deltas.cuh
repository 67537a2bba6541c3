// Deltas of a backward over few keys (mma_short_backward.cuh): o dO of each row, less the gradient
// by lse. They are those of the o that is given, which may be that of more keys than these.
#pragma once

#include "attn/mma_backward_stages.cuh"
#include "attn/reals.cuh"

namespace kernels {

template <class Base>
struct DeltasOfRows : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using S = typename Base::S;
  using Base::Base;
  using Base::stages, Base::lane, Base::warp_of_block;

  // Those of pointwise weights are zeros.
  __device__ __forceinline__ void begin_deltas() const {
    if ((int)threadIdx.x < C::kBlockRows)
      store_shared(stages.deltas_of_step() + threadIdx.x * 4, 0);
  }

  // Makes deltas of a stage, whose rows are there: four lanes a row, eight rows of a warp at a
  // time. Threads meet before they are read.
  __device__ __forceinline__ void make_deltas(int n) const {
    if constexpr (!kPointwise<E>) {
#pragma unroll
      for (int first = 0; first < C::kBlockRows; first += 8 * S::kWarps) {
        const int row = first + warp_of_block() * 8 + (int)lane() / 4;
        if (C::kBlockRows % (8 * S::kWarps) == 0 || row < C::kBlockRows) make_delta(n, row);
      }
    }
  }

 private:
  __device__ __forceinline__ void make_delta(int n, int row) const {
    constexpr int kVectors = (C::Outputs::kColumns + 7) / 8;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kVectors; i += 4) {
      const int vector = i + (int)(lane() & 3);
      if (kVectors % 4 != 0 && vector >= kVectors) continue;
      const unsigned at = vector_of(row, vector);
      sum += product(load_vector(stages.output(n) + at), load_vector(stages.gradient(n) + at));
    }
    // Rows of a warp are there all, or none.
    sum += __shfl_xor_sync(~0u, sum, 1), sum += __shfl_xor_sync(~0u, sum, 2);
    if ((lane() & 3) != 0) return;
    const bool empty = __uint_as_float(load_shared(stages.exponents(n) + row * 4)) == nothing();
    const float of_lse = __uint_as_float(load_shared(stages.lse_gradients(n) + row * 4));
    store_shared(stages.deltas_of_step() + row * 4, __float_as_uint(empty ? 0.0f : sum - of_lse));
  }

  // Where copy_rows() stores it.
  static __device__ __forceinline__ unsigned vector_of(int row, int vector) {
    constexpr int kPanel = C::kWidthPanel, kOfPanel = kPanel / 8;
    return row * (2 * kPanel) + vector / kOfPanel * S::kGradientPanel +
           (vector ^ row / (64 / kPanel)) % kOfPanel * 16;
  }
  static __device__ __forceinline__ float product(const uint4& x, const uint4& y) {
    return product(x.x, y.x) + product(x.y, y.y) + product(x.z, y.z) + product(x.w, y.w);
  }
  static __device__ __forceinline__ float product(unsigned x, unsigned y) {
    const auto half = [](unsigned pair, int i) {
      return C::Float::widen((unsigned short)(pair >> 16 * i));
    };
    return fmaf(half(x, 0), half(y, 0), half(x, 1) * half(y, 1));
  }
};

}  // namespace kernels
