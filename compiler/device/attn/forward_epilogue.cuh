// Rows of o after an epilogue, as the forward stores them.
#pragma once

#include "attn/epilogue.cuh"
#include "attn/exchange.cuh"
#include "attn/tile_rows.cuh"

namespace kernels {

// 16-bit floats. E has what becomes of an element: epilogue(b, h, row, column, vectors, o). A row
// past the length stays 0.
template <class Base>
struct RowsOfEpilogue : Base {
  using C = typename Base::C;
  using E = typename Base::E;
  using Output = typename Base::Output;
  using OutputBits = typename Base::OutputBits;
  using Largest = typename Base::Largest;
  using Base::Base;
  using Base::kFirstOfWidth, Base::kWidth, Base::lane, Base::exists, Base::place_of_row,
      Base::store_columns, Base::expressions, Base::tensors, Base::o;

  // The row of a head of a batch, and whether it is one of the attention.
  struct RowOfHead {
    int b, h, q;
    bool present;
  };
  __device__ __forceinline__ RowOfHead row_of_head(int b, int h, int q) const {
    return {b, h, q, exists(b, q) && q < expressions.queries(b)};
  }

  // Brings what the epilogue reads of a tile's rows to the L2 cache, while scores are computed.
  __device__ __forceinline__ void prefetch_rows(const TileRows<C>& at) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const RowOfHead row = row_of_head(at.b, at.h[r], at.q[r]);
      if (row.present)
        EpilogueVectors<E>::prefetch(expressions, row.b, row.h, row.q, C::kStored, lane);
    }
  }

  // What is kept of o before the epilogue is stored first: registers are few.
  __device__ __forceinline__ void store_row(const TileRows<C>& at, int r, float factor, Largest&) {
    const RowOfHead row = row_of_head(at.b, at.h[r], at.q[r]);
    if (E::kKeepsInner) store_inner(row, r, factor);
    constexpr int kAhead = kWidth <= 128 ? kParts : 1;
    EpilogueVectors<E> vectors[kAhead];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; part % kAhead == 0 && i < kAhead; ++i)
        load(row, column_of(part + i), vectors[i]);
      vectors[part % kAhead].spread(lane);
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int group = 4 * part + i, column = kFirstOfWidth + 8 * group + (lane & 3) * 2;
        const float two[2] = {o[4 * group + 2 * r], o[4 * group + 2 * r + 1]};
        pairs[i] = after(row, column, vectors[part % kAhead], i, two, factor);
      }
      exchange(pairs, lane);
      store_eight(tensors.o, row, column_of(part), pairs);
    }
  }

  // Stores eight adjacent columns of a merged row.
  __device__ __forceinline__ void store_merged_columns(int b, int h, int q, int column,
                                                       const float (&x)[8], float factor) {
    const RowOfHead row = row_of_head(b, h, q);
    EpilogueVectors<E> vectors;
    load(row, column, vectors);
    unsigned pairs[4], inner[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float two[2] = {x[2 * i], x[2 * i + 1]};
      pairs[i] = after(row, column + 2 * i, vectors, i, two, factor);
      inner[i] = before(two, factor);
    }
    store_eight(tensors.o, row, column, pairs);
    if (E::kKeepsInner) store_eight(tensors.o_inner, row, column, inner);
  }

 private:
  static constexpr int kParts = kWidth / 32;

  __device__ __forceinline__ void store_inner(const RowOfHead& row, int r, float factor) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (4 * part + i) + 2 * r;
        pairs[i] = before({o[at], o[at + 1]}, factor);
      }
      exchange(pairs, lane);
      store_eight(tensors.o_inner, row, column_of(part), pairs);
    }
  }

  // The columns that this lane stores of a part of 32.
  __device__ __forceinline__ int column_of(int part) const {
    return kFirstOfWidth + (4 * part + (lane & 3)) * 8;
  }

  __device__ __forceinline__ void load(const RowOfHead& row, int column,
                                       EpilogueVectors<E>& to) const {
    to.load(expressions, row.b, row.h, row.q, column, row.present && column < C::kStored);
  }

  // 0 for a factor of 0, whatever hidden values are.
  static __device__ __forceinline__ unsigned before(const float (&two)[2], float factor) {
    return factor == 0 ? 0 : pair(Output{}, two[0] * factor, two[1] * factor);
  }

  // Two columns from `column` on, of which the sums are `two`; pair i of the vectors.
  __device__ __forceinline__ unsigned after(const RowOfHead& row, int column,
                                            const EpilogueVectors<E>& vectors, int i,
                                            const float (&two)[2], float factor) const {
    float made[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float inner = factor == 0 ? 0 : two[j] * factor;
      const bool is_there = C::kStored % 32 == 0 || column + j < C::kStored;
      if (!row.present || !is_there) continue;
      float of[E::kVectors + 1];
      vectors.get(i, j, of);
      made[j] = expressions.epilogue(row.b, row.h, row.q, column + j, of, inner);
    }
    return pair(Output{}, made[0], made[1]);
  }

  __device__ __forceinline__ void store_eight(void* to, const RowOfHead& row, int column,
                                              const unsigned (&pairs)[4]) {
    if (!exists(row.b, row.q) || column >= C::kStored) return;
    store_columns(static_cast<OutputBits*>(to) + place_of_row(row.b, row.h, row.q), column, pairs);
  }
};

}  // namespace kernels
