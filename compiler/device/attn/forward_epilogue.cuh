// Rows of o after an epilogue, as the forward stores them.
#pragma once

#include "attn/epilogue.cuh"
#include "attn/exchange.cuh"
#include "attn/reals.cuh"
#include "attn/tile_rows.cuh"

namespace kernels {

// 16-bit floats. E has what becomes of an element: epilogue(b, h, row, column, values, o,
// sigmoid), where values are those of its vectors and then those of epilogue_values(b, h, row, ..).
// A row past the length stays 0.
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

  // What the epilogue reads of a thread's two rows before it is needed: values of rows, and vectors
  // of as many parts as registers hold, those of the second row after those of the first.
  static constexpr int kAhead = kWidth <= 128 ? kWidth / 32 : 1;
  struct Ahead {
    float values[2][E::kEpilogueValues + 1];
    EpilogueVectors<E> vectors[kAhead];
  };
  __device__ __forceinline__ void read_ahead(const TileRows<C>& at, Ahead& ahead) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) read_values(row_of_head(at.b, at.h[r], at.q[r]), ahead.values[r]);
  }
  __device__ __forceinline__ void read_vectors(const TileRows<C>& at, Ahead& ahead) const {
#pragma unroll
    for (int part = 0; part < kAhead; ++part) load_part(at, part, ahead);
  }

  // What is kept of o before the epilogue is stored first: registers are few.
  __device__ __forceinline__ void store_row(const TileRows<C>& at, int r, float factor, Largest&,
                                            Ahead& ahead) {
    const RowOfHead row = row_of_head(at.b, at.h[r], at.q[r]);
    if (E::kKeepsInner) store_inner(row, r, factor);
#pragma unroll
    for (int part = 0; part < kParts; part += kAhead) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) ahead.vectors[(part + i) % kAhead].spread(lane);
      unsigned pairs[kAhead][4] = {};
      float least = 0;
      if (E::kPlainSigmoids) {  // what they are taken of, which takes few instructions
        unsigned unused[kAhead][4];
        const auto take = [&least](float x) { return least = fminf(least, x); };
        compute_parts(row, r, factor, part, ahead, take, unused);
      }
      if (!E::kPlainSigmoids || __any_sync(~0u, least < kLeastOfFastSigmoid))
        compute_parts(row, r, same(factor), part, ahead, exact_sigmoid(), pairs);
      else
        compute_parts(row, r, same(factor), part, ahead, fast_sigmoid, pairs);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        load_part(at, r * kParts + part + i + kAhead, ahead);
        exchange(pairs[i], lane);
        store_eight(tensors.o, row, column_of(part + i), pairs[i]);
      }
    }
  }

  // Stores eight adjacent columns of a merged row.
  __device__ __forceinline__ void store_merged_columns(int b, int h, int q, int column,
                                                       const float (&x)[8], float factor) {
    const RowOfHead row = row_of_head(b, h, q);
    float values[E::kEpilogueValues + 1];
    read_values(row, values);
    EpilogueVectors<E> vectors;
    load(row, column, vectors);
    unsigned pairs[4] = {0, 0, 0, 0}, inner[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float two[2] = {x[2 * i], x[2 * i + 1]};
      if (row.present)
        pairs[i] = after(row, column + 2 * i, values, vectors, i, two, factor, exact_sigmoid());
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

  // What elements of parts become, in one branch at most, so that none waits for the one before.
  template <class Sigmoid>
  __device__ __forceinline__ void compute_parts(const RowOfHead& row, int r, float factor,
                                                int first, const Ahead& ahead,
                                                const Sigmoid& sigmoid,
                                                unsigned (&pairs)[kAhead][4]) const {
    if (E::kReadsElements && !row.present) return;
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int group = 4 * (first + n) + i, column = kFirstOfWidth + 8 * group + (lane & 3) * 2;
        const float two[2] = {o[4 * group + 2 * r], o[4 * group + 2 * r + 1]};
        const unsigned both = after(row, column, ahead.values[r],
                                    ahead.vectors[(first + n) % kAhead], i, two, factor, sigmoid);
        pairs[n][i] = row.present ? both : 0;
      }
    }
  }

  static __device__ __forceinline__ float same(float x) {
    return __int_as_float(unknown(__float_as_int(x)));
  }

  // 1 / (1 + exp(-x)) for any x.
  __device__ __forceinline__ auto exact_sigmoid() const {
    return [this](float x) { return expressions.attn_sigmoid(x); };
  }

  // Loads the vectors of a part, which are counted through both rows.
  __device__ __forceinline__ void load_part(const TileRows<C>& at, int n, Ahead& ahead) const {
    const int r = n / kParts, part = n % kParts;
    if (r < 2)
      load(row_of_head(at.b, at.h[r], at.q[r]), column_of(part), ahead.vectors[part % kAhead]);
  }

  // Nothing is read of a row that is not there.
  __device__ __forceinline__ void read_values(const RowOfHead& row, float* values) const {
    if constexpr (E::kEpilogueValues > 0) {
#pragma unroll
      for (int n = 0; n < E::kEpilogueValues; ++n) values[n] = 0;
      if (row.present) expressions.epilogue_values(row.b, row.h, row.q, values);
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
  template <class Sigmoid>
  __device__ __forceinline__ unsigned after(const RowOfHead& row, int column,
                                            const float (&values)[E::kEpilogueValues + 1],
                                            const EpilogueVectors<E>& vectors, int i,
                                            const float (&two)[2], float factor,
                                            const Sigmoid& sigmoid) const {
    float made[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float inner = factor == 0 ? 0 : two[j] * factor;
      if (C::kStored % 32 != 0 && column + j >= C::kStored) continue;
      float of[E::kVectors + E::kEpilogueValues + 1];
      vectors.get(i, j, of);
#pragma unroll
      for (int n = 0; n < E::kEpilogueValues; ++n) of[E::kVectors + n] = values[n];
      made[j] = expressions.epilogue(row.b, row.h, row.q, column + j, of, inner, sigmoid);
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
