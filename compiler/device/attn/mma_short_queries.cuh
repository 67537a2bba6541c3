// dQ of a backward over few keys (mma_short_backward.cuh), which is stored as it is made.
#pragma once

#include "attn/backward_store.cuh"
#include "attn/mma_backward_stages.cuh"
#include "attn/mma_panels.cuh"

namespace kernels {

// dQ = dS K: warps take pieces of 16 rows and 32 columns in turns.
template <class Base>
struct QueriesOfWarps : Base {
  using C = typename Base::C;
  using Float = typename Base::Float;
  using S = typename Base::S;
  using Base::Base;
  using Base::stages, Base::tensors, Base::expressions, Base::now, Base::lane, Base::warp_of_block;
  static constexpr int kStrips = C::kBlockRows / 16, kPieces = kStrips * (C::kDepth / 32);

  // All threads of the block call it, once all have stored dS^T.
  __device__ __forceinline__ void store_queries() const {
    if (tensors.dq == nullptr) return;
    using P = typename C::Queries;
    const int b = now.head / C::kHeads, h = now.head % C::kHeads;
    const int rows = P::kPacked ? expressions.queries(b) : C::kRows;
#pragma unroll
    for (int i = 0; i < (kPieces + S::kWarps - 1) / S::kWarps; ++i) {
      const int piece = warp_of_block() + i * S::kWarps;
      if (kPieces % S::kWarps != 0 && piece >= kPieces) return;
      const int strip = piece % kStrips, columns = piece / kStrips * 32;
      if (columns >= P::kColumns || now.row + strip * 16 >= rows) continue;
      float dq[16] = {};
      multiply(strip, columns / 16, dq);
      const float factor = expressions.scale();
      store_two_rows<P>(
          tensors.dq, tensors.row_starts, b, h, now.row + strip * 16 + (int)lane() / 4, rows,
          columns, dq, [] { return Base::lane(); },
          [factor](float x, float y, bool) { return pair(Float{}, x * factor, y * factor); });
    }
  }

 private:
  // 16 rows, and 32 columns from the `first`-th 16 on.
  __device__ __forceinline__ void multiply(int strip, int first, float (&dq)[16]) const {
    const unsigned x = at_step<C::kBlockRows>(
        stages.slopes() +
            lane_offset<C::kBlockRows>((lane() & 7) + (lane() >> 4) * 8, lane() >> 3 & 1),
        strip, 0);
    const unsigned y = this->keys_of_item() + lane_offset<C::kDepthPanel>(lane() & 15, lane() >> 4);
#pragma unroll
    for (int key = 0; key < S::kKeys; key += 16) {
      unsigned a[4];
      load_transposed(a, x + key * S::kSlopeRow);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        unsigned b[4];
        load_transposed(
            b, at_step<C::kDepthPanel>(y, first + j, S::kKeyPanel) + key * (2 * C::kDepthPanel));
        kernels::multiply(Float{}, dq, 8 * j, a, b[0], b[1]);
        kernels::multiply(Float{}, dq, 8 * j + 4, a, b[2], b[3]);
      }
    }
  }
};

}  // namespace kernels
