// Kernels before the backward: deltas, and the largest rows.
#pragma once

#include "attn/learned_parts.cuh"
#include "attn/places.cuh"
#include "attn/reals.cuh"

namespace kernels {

// Exponents and deltas of kPaddedRows rows of each head, 16 threads a row. Rows that are empty, or
// past the length, get the exponent -inf and the delta 0. With kPointwise, o and lse are not read,
// and both are 0 for all others. d_lse, if there is one, is subtracted from delta, and `largest`,
// if there is one, gets its largest magnitude.
template <class C, class E>
ATTN_INLINE void prepare(const unsigned short* o, const unsigned short* d_o, const float* lse,
                         const int* row_starts, const E& expressions, float* exponents,
                         float* deltas, const float* d_lse = nullptr, Largest* largest = nullptr) {
  using P = typename C::Outputs;
  const long long i = attn_thread(), row = i / 16;
  const int q = (int)(row % C::kPaddedRows), h = (int)(row / C::kPaddedRows % C::kHeads);
  const int b = (int)(row / C::kPaddedRows / C::kHeads), lane = (int)(i % 16);
  const bool exists = b < C::kBatches && q < expressions.queries(b);
  const auto statistic = [&](const float* of) {
    return of[C::Statistics::place(row_starts, b, h % C::kHeadsOfClass, q) +
              h / C::kHeadsOfClass * C::kStatisticsClass];
  };
  const float of_row = !exists ? nothing() : kPointwise<E> ? 0.0f : statistic(lse);
  const bool empty = of_row == nothing();
  float sum = 0;
  for (int column = lane * 8; !kPointwise<E> && !empty && column < P::kColumns; column += 128) {
    const long long at = P::place(row_starts, b, h, q) + column * P::kColumn;
    unsigned x[4], y[4];
    P::load(o + at, column, x);
    P::load(d_o + at, column, y);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const auto element = [j](const unsigned(&pairs)[4]) {
        return C::Float::widen((unsigned short)(pairs[j / 2] >> (j & 1) * 16));
      };
      sum = fmaf(element(x), element(y), sum);
    }
  }
#pragma unroll
  for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane != 0 || b >= C::kBatches) return;
  if (d_lse && !empty) {
    const float of_lse = statistic(d_lse);
    if (largest) largest->include(of_lse);
    sum -= of_lse;
  }
  exponents[row] = empty ? nothing() : -of_row * kLog2E;
  deltas[row] = sum;
}

// The square of a row, of which this thread has each 16th group of 8 columns.
template <class P, class Float>
ATTN_INLINE float share_of_square(const unsigned short* row) {
  float square = 0;
  for (int column = (int)(threadIdx.x % 16) * 8; column < P::kColumns; column += 128) {
    unsigned pairs[4];
    P::load(row + column * P::kColumn, column, pairs);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float x = Float::widen((unsigned short)(pairs[j / 2] >> (j & 1) * 16));
      square = fmaf(x, x, square);
    }
  }
  return square;
}

// Largest of rows of dO, then of v, 16 threads a row, where G and V say.
template <class C, class G, class V, class E>
ATTN_INLINE void find_largest(const unsigned short* d_o, const unsigned short* v,
                              const int* row_starts, const int* column_starts, const E& expressions,
                              unsigned long long* words) {
  using Float = typename C::Float;
  const long long of_gradients = (long long)C::kBatches * C::kHeads * C::kRows;
  const long long n = attn_thread() / 16;
  const bool is_value = n >= of_gradients;
  const long long i = is_value ? n - of_gradients : n;
  const int heads = is_value ? C::kKeyHeads : C::kHeads, rows = is_value ? C::kColumns : C::kRows;
  const int row = (int)(i % rows), h = (int)(i / rows % heads), b = (int)(i / rows / heads);
  float square = 0;
  if (is_value && b < C::kBatches && row < expressions.keys(b)) {
    square = share_of_square<V, Float>(v + V::place(column_starts, b, h, row));
  }
  if (!is_value && row < expressions.queries(b)) {
    square = share_of_square<G, Float>(d_o + G::place(row_starts, b, h, row));
  }
  include_square(words + is_value, square);
}

}  // namespace kernels
