// Kernels before the backward of an attention with an epilogue: the gradient of o before it, and
// those of the tensors that it reads.
//
//   C  constants: kBatches, kHeads, kRows, kHasLse, kParts, Outputs and Statistics (places.cuh)
//   E  expressions, inlined: slopes(b, h, row, column, vectors, o), queries(b), and for each
//      learned tensor Learned<k>: kBatch, kHead, kRow, kColumn, whether it varies with them, and
//      the strides of those
#pragma once

#include "attn/epilogue.cuh"
#include "attn/lengths.cuh"
#include "attn/places.cuh"
#include "attn/reals.cuh"

namespace kernels {

// Derivatives of an element after the epilogue: by that before it, and by the element of each of
// kCount learned tensors.
template <int kCount>
struct EpilogueSlopes {
  float output;
  float learned[kCount + 1];
};

struct EpilogueTensors {
  const unsigned short *o = nullptr, *d_o = nullptr;  // before the epilogue, and after it
  const float* lse = nullptr;
  const int* row_starts = nullptr;
};

// Eight columns of a row: o, do, and what follows from them.
template <class C, class E>
struct EpilogueColumns {
  using P = typename C::Outputs;
  unsigned o[4], d_o[4];
  EpilogueVectors<E> vectors;

  __device__ __forceinline__ void load(const EpilogueTensors& tensors, const E& expressions, int b,
                                       int h, int row, int column) {
    const long long at = P::place(tensors.row_starts, b, h, row) + column * P::kColumn;
    P::load(tensors.o + at, column, o);
    P::load(tensors.d_o + at, column, d_o);
    vectors.load(expressions, b, h, row, column, true);
  }
  static __device__ __forceinline__ float element(const unsigned (&pairs)[4], int j) {
    return C::Float::widen((unsigned short)(pairs[j / 2] >> (j & 1) * 16));
  }
  // The derivatives at column + j, times do.
  __device__ __forceinline__ EpilogueSlopes<E::kLearned> terms(const E& expressions, int b, int h,
                                                               int row, int column, int j) const {
    float of[E::kVectors + 1];
    vectors.get(j / 2, j & 1, of);
    EpilogueSlopes<E::kLearned> all = expressions.slopes(b, h, row, column + j, of, element(o, j));
    const float cotangent = element(d_o, j);
    all.output *= cotangent;
#pragma unroll
    for (int k = 0; k < E::kLearned; ++k) all.learned[k] *= cotangent;
    return all;
  }
};

// Sums of a learned tensor's gradient that a row has to itself: kFirst and those behind it.
template <class C, class E, int kFirst = 0, bool kMore = (kFirst < E::kLearned)>
struct OwnGradients {
  __device__ __forceinline__ void add(const E&, int, int, int, int, const float*, bool) {}
  __device__ __forceinline__ void store(const E&, int, int, int, int, bool) {}
};
template <class C, class E, int kFirst>
struct OwnGradients<C, E, kFirst, true> {
  using Of = typename E::template Learned<kFirst>;
  static constexpr bool kOwn = Of::kBatch && Of::kHead && Of::kRow;
  float sum = 0;
  OwnGradients<C, E, kFirst + 1> rest;

  // Adds the term at a column; where columns have elements of their own, stores it.
  __device__ __forceinline__ void add(const E& expressions, int b, int h, int row, int column,
                                      const float* terms, bool exists) {
    if constexpr (kOwn && Of::kColumn) {
      if (exists)
        expressions.template store<kFirst>(Of::place(b, h, row) + column * Of::kColumnStride,
                                           terms[kFirst]);
    } else if constexpr (kOwn) {
      sum += terms[kFirst];
    }
    rest.add(expressions, b, h, row, column, terms, exists);
  }
  // Stores sums over the columns, which 16 lanes have.
  __device__ __forceinline__ void store(const E& expressions, int b, int h, int row, int lane,
                                        bool exists) {
    if constexpr (kOwn && !Of::kColumn) {
#pragma unroll
      for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (lane == 0 && exists) expressions.template store<kFirst>(Of::place(b, h, row), sum);
    }
    rest.store(expressions, b, h, row, lane, exists);
  }
};

// Makes d_inner, the gradient of o before the epilogue, and those of learned tensors of which each
// row has elements of its own: 16 threads a row. Both are 0 in rows past the length; where a row
// sees nothing, o is 0 whatever q, k and v are, and d_inner is 0.
template <class C, class E>
ATTN_INLINE void epilogue_backward(const EpilogueTensors& tensors, const E& expressions,
                                   unsigned short* d_inner) {
  using P = typename C::Outputs;
  const long long i = attn_thread(), whole = i / 16;
  const int row = (int)(whole % C::kRows), h = (int)(whole / C::kRows % C::kHeads);
  const int b = (int)(whole / C::kRows / C::kHeads), lane = (int)(i % 16);
  const bool exists = b < C::kBatches;
  const bool present = exists && row < expressions.queries(b);
  const bool empty =
      !present ||
      (C::kHasLse && tensors.lse[C::Statistics::place(tensors.row_starts, b, h, row)] == nothing());
  OwnGradients<C, E> own;
  for (int column = lane * 8; column < P::kColumns; column += 128) {
    EpilogueColumns<C, E> columns;
    unsigned pairs[4] = {0, 0, 0, 0};
    if (present) columns.load(tensors, expressions, b, h, row, column);
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      float two[2] = {0, 0};
#pragma unroll
      for (int of = 0; of < 2; ++of) {
        EpilogueSlopes<E::kLearned> terms{};
        const bool has = P::has(column + j + of);
        if (present && has) terms = columns.terms(expressions, b, h, row, column, j + of);
        own.add(expressions, b, h, row, column + j + of, terms.learned, exists && has);
        two[of] = empty ? 0 : terms.output;
      }
      pairs[j / 2] = pair(typename C::Float{}, two[0], two[1]);
    }
    const bool stores = d_inner != nullptr && (P::kPacked ? present : exists);
    if (stores)
      P::store(d_inner + P::place(tensors.row_starts, b, h, row) + column * P::kColumn, column,
               pairs);
  }
  own.store(expressions, b, h, row, lane, exists);
}

// Numbers of the rows that share elements of a learned tensor, and of those that do not.
template <class C, class Of>
struct SharedRows {
  static constexpr long long kKept =
      (Of::kBatch ? C::kBatches : 1ll) * (Of::kHead ? C::kHeads : 1) * (Of::kRow ? C::kRows : 1);
  static constexpr long long kShared =
      (long long)C::kBatches * C::kHeads * C::kRows / kKept;  // for each of these

  // An index that takes part in `number` gets its share.
  static __device__ __forceinline__ int take(long long& number, bool takes, int extent) {
    if (!takes) return 0;
    const int index = (int)(number % extent);
    number /= extent;
    return index;
  }
  int b, h, row;
  __device__ __forceinline__ SharedRows(long long kept, long long shared) {
    row = take(kept, Of::kRow, C::kRows) + take(shared, !Of::kRow, C::kRows);
    h = take(kept, Of::kHead, C::kHeads) + take(shared, !Of::kHead, C::kHeads);
    b = take(kept, Of::kBatch, C::kBatches) + take(shared, !Of::kBatch, C::kBatches);
  }
};

// Sums of the terms of a learned tensor that rows share, in parts of these rows: a block of 256
// threads has a part of one kept number, and writes its sums at parts[number, part, columns], or
// one sum if columns share elements too. 16 lanes have a row. The order of sums is fixed.
template <class C, class E, int kTensor>
ATTN_INLINE void sum_epilogue_parts(const EpilogueTensors& tensors, const E& expressions, int count,
                                    float* parts) {
  using P = typename C::Outputs;
  using Of = typename E::template Learned<kTensor>;
  using Rows = SharedRows<C, Of>;
  constexpr int kChunks = (P::kColumns + 127) / 128;
  const int number = (int)(blockIdx.x / count), part = (int)(blockIdx.x % count);
  const int lane = threadIdx.x % 16, slot = threadIdx.x / 16;
  float sums[kChunks][8] = {};
  for (long long shared = part * 16 + slot; shared < Rows::kShared; shared += count * 16) {
    const Rows at(number, shared);
    if (at.row >= expressions.queries(at.b)) continue;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int column = chunk * 128 + lane * 8;
      if (P::kColumns % 128 != 0 && column >= P::kColumns) continue;
      EpilogueColumns<C, E> columns;
      columns.load(tensors, expressions, at.b, at.h, at.row, column);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (!P::has(column + j)) continue;
        sums[chunk][j] +=
            columns.terms(expressions, at.b, at.h, at.row, column, j).learned[kTensor];
      }
    }
  }
  float* const shares = reinterpret_cast<float*>(shared_memory());  // [16, 128]
  float whole = 0;
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    if (chunk > 0) __syncthreads();
#pragma unroll
    for (int j = 0; j < 8; ++j) shares[slot * 128 + lane * 8 + j] = sums[chunk][j];
    __syncthreads();
    const int column = chunk * 128 + threadIdx.x;
    if (threadIdx.x >= 128 || column >= P::kColumns) continue;
    float sum = 0;
    for (int i = 0; i < 16; ++i) sum += shares[i * 128 + threadIdx.x];
    if constexpr (Of::kColumn)
      parts[(long long)blockIdx.x * P::kColumns + column] = sum;
    else
      whole += sum;
  }
  if constexpr (!Of::kColumn) {
    __syncthreads();
    if (threadIdx.x < 128) shares[threadIdx.x] = whole;
    __syncthreads();
    if (threadIdx.x != 0) return;
    float sum = 0;
    for (int i = 0; i < 128; ++i) sum += shares[i];
    parts[blockIdx.x] = sum;
  }
}

// Adds the parts of each element of a learned tensor's gradient.
template <class C, class E, int kTensor>
ATTN_INLINE void add_epilogue_parts(const E& expressions, int count, const float* parts) {
  using Of = typename E::template Learned<kTensor>;
  using Rows = SharedRows<C, Of>;
  constexpr int kColumns = Of::kColumn ? C::Outputs::kColumns : 1;
  const long long i = attn_thread(), number = i / kColumns;
  if (number >= Rows::kKept) return;
  const int column = (int)(i % kColumns);
  double sum = 0;
  for (int part = 0; part < count; ++part)
    sum += parts[(number * count + part) * kColumns + column];
  const Rows at(number, 0);
  expressions.template store<kTensor>(Of::place(at.b, at.h, at.row) + column * Of::kColumnStride,
                                      (float)sum);
}

}  // namespace kernels
