// The kernel before the backward of 8-bit floats: q, k, v and dO become bf16, which holds all of
// their values exactly, in rows that follow each other; and what prepare() makes of 16 bits.
//
// Scales are where they cost nothing: those of q and k in scores, those of v and dO in gradients.
// So dP is v dO as they are stored, and a delta is in its units: descale_o / descale_v times the
// sum of dO O.
//
// A generated kernel has these constants beside others: Narrow, NarrowGradient and Stored, the
// types of q, k and v, of dO, and of o; NarrowQueries, NarrowKeys, NarrowValues and Outputs, where
// they are; QueryRows, KeyRows, ValueRows and GradientRows, where their copies are.
#pragma once

#include "attn/places.cuh"
#include "attn/reals.cuh"
#include "attn/which.cuh"
#include "attn/widening.cuh"

namespace kernels {

// What it reads and writes.
struct NarrowTensors {
  const unsigned char *q, *k, *v, *d_o;
  const void* o;
  const float* lse;
  unsigned short *query_rows, *key_rows, *value_rows, *gradient_rows;
  float *exponents, *deltas;
  const int *row_starts, *column_starts;  // null: not packed
  unsigned* amax[4];                      // outputs that are to be 0 before the backward
};

// 16 threads a row: first kPaddedRows rows of each head, then the keys of each head of keys.
template <class C, class E>
struct Widener {
  // The type of o, once 8 bits are widened.
  static constexpr bool kNarrowOutput = sizeof(typename C::Stored::Bits) == 1;
  using Output = typename Which<kNarrowOutput, BF16, typename C::Stored>::Type;
  static constexpr long long kRowsOfHeads = (long long)C::kBatches * C::kHeads * C::kPaddedRows;
  static constexpr long long kRowsOfKeys = (long long)C::kBatches * C::kKeyHeads * C::kColumns;
  static_assert(kRowsOfHeads % 2 == 0, "a warp has two rows of one kind");

  const NarrowTensors& tensors;
  const E& expressions;

  __device__ void run() const {
    const long long i = attn_thread(), row = i / 16;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if (i == n) *tensors.amax[n] = 0;
    }
    if (row < kRowsOfHeads)
      prepare(row);
    else if (row - kRowsOfHeads < kRowsOfKeys)
      widen_key(row - kRowsOfHeads);
  }

 private:
  static __device__ int lane() { return (int)(threadIdx.x % 16); }

  // Eight columns, as pairs.
  template <class From, class P>
  static __device__ void load(const unsigned char* from, int column, unsigned (&pairs)[4]) {
    const uint2 bytes = P::load(from, column);
    const uint2 low = widened(From{}, BF16{}, bytes.x), high = widened(From{}, BF16{}, bytes.y);
    pairs[0] = low.x, pairs[1] = low.y, pairs[2] = high.x, pairs[3] = high.y;
  }
  template <class From, class P>
  static __device__ void load(const unsigned short* from, int column, unsigned (&pairs)[4]) {
    P::load(from, column, pairs);
  }
  template <class Float>
  static __device__ float element(const unsigned (&pairs)[4], int i) {
    return Float::widen((unsigned short)(pairs[i / 2] >> (i & 1) * 16));
  }

  // Widens this thread's columns of a row.
  template <class From, class P, class To>
  __device__ void widen(const unsigned char* from, unsigned short* to, const int* starts, int b,
                        int h, int row) const {
    from += P::place(starts, b, h, row), to += To::place(starts, b, h, row);
    for (int column = lane() * 8; column < P::kColumns; column += 128) {
      unsigned pairs[4];
      load<From, P>(from + column * P::kColumn, column, pairs);
      To::store(to + column, column, pairs);
    }
  }

  __device__ void widen_key(long long row) const {
    const int key = (int)(row % C::kColumns), h = (int)(row / C::kColumns % C::kKeyHeads);
    const int b = (int)(row / C::kColumns / C::kKeyHeads);
    if (key >= expressions.keys(b)) return;
    widen<typename C::Narrow, typename C::NarrowKeys, typename C::KeyRows>(
        tensors.k, tensors.key_rows, tensors.column_starts, b, h, key);
    widen<typename C::Narrow, typename C::NarrowValues, typename C::ValueRows>(
        tensors.v, tensors.value_rows, tensors.column_starts, b, h, key);
  }

  // The row of q and of dO, its exponent and its delta. Rows that are empty are widened, too: their
  // weights are 0, and must not meet NaN.
  __device__ void prepare(long long row) const {
    const int q = (int)(row % C::kPaddedRows), h = (int)(row / C::kPaddedRows % C::kHeads);
    const int b = (int)(row / C::kPaddedRows / C::kHeads);
    const bool exists = q < expressions.queries(b);
    float sum = 0;
    if (exists) {
      widen<typename C::Narrow, typename C::NarrowQueries, typename C::QueryRows>(
          tensors.q, tensors.query_rows, tensors.row_starts, b, h, q);
      sum = widen_gradient(b, h, q);
    }
#pragma unroll
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane() != 0) return;
    const float of_row = exists ? lse(b, h, q) : nothing();
    const bool empty = of_row == nothing();
    tensors.exponents[row] = empty ? nothing() : -of_row * kLog2E;
    tensors.deltas[row] = empty ? 0.0f : sum * expressions.delta_factor();
  }

  __device__ float lse(int b, int h, int q) const {
    return tensors.lse[C::Statistics::place(tensors.row_starts, b, h % C::kHeadsOfClass, q) +
                       h / C::kHeadsOfClass * C::kStatisticsClass];
  }

  // Widens this thread's columns of a row of dO. Returns their share in the sum of dO O.
  __device__ float widen_gradient(int b, int h, int q) const {
    using P = typename C::Outputs;
    using To = typename C::GradientRows;
    const long long at = P::place(tensors.row_starts, b, h, q);
    const auto* const o = static_cast<const typename C::Stored::Bits*>(tensors.o) + at;
    unsigned short* const to = tensors.gradient_rows + To::place(tensors.row_starts, b, h, q);
    float sum = 0;
    for (int column = lane() * 8; column < P::kColumns; column += 128) {
      unsigned x[4], y[4];
      load<typename C::Stored, P>(o + column * P::kColumn, column, x);
      load<typename C::NarrowGradient, P>(tensors.d_o + at + column * P::kColumn, column, y);
      To::store(to + column, column, y);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fmaf(element<Output>(x, i), element<BF16>(y, i), sum);
    }
    return sum;
  }
};

}  // namespace kernels
