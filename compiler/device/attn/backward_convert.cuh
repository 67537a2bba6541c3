// Kernels after the backward: dq of its sums, and dk and dv of parts.
#pragma once

#include "attn/division.cuh"
#include "attn/gradient_columns.cuh"
#include "attn/places.cuh"
#include "attn/tile_runs.cuh"

namespace kernels {

// Rows that a block of threads converts, through shared memory: kConvertedRows (kDepth + 1) floats.
constexpr int kConvertedRows = 32;

// Sums of dq: those of 8 rows and 16 columns are 128 floats, four of each lane (QuerySums), which
// follow each other or, with kScatters, those of all lanes.
template <class C>
ATTN_INLINE float4 sums_of_lane(const float* sums, long long row, int lane) {
  if constexpr (C::kScatters) {
    const float* const from = sums + row * 16 + lane;
    return float4{from[0], from[32], from[64], from[96]};
  } else {
    return reinterpret_cast<const float4*>(sums)[row * 4 + lane];
  }
}

// Makes dq of its sums: the share of this block of threads.
template <class C, class E>
ATTN_INLINE void convert(const float* sums, const int* row_starts, const E& expressions,
                         GradientBits<C>* dq, unsigned* amax, int block) {
  using P = typename C::Queries;
  float* const tile = reinterpret_cast<float*>(shared_memory());
  constexpr int kStride = C::kDepth + 1;  // of its rows
  constexpr int kTiles = (C::kRows + kConvertedRows - 1) / kConvertedRows;
  const int head_of_all = block / kTiles, first = block % kTiles * kConvertedRows;
  const int b = head_of_all / C::kHeads, h = head_of_all % C::kHeads;
  const int rows = P::kPacked ? expressions.queries(b) : C::kRows;
  if (first >= rows) return;
  const GradientFactors<C, E> factors{expressions};
  const float factor = factors.of_queries();
  StoredGradient<C> stored = factors.stored_queries();
  for (int i = threadIdx.x; i < kConvertedRows / 8 * C::kDepth * 2; i += blockDim.x) {
    const int lane = i % 32, eight = i / 32 % (kConvertedRows / 8);
    const int columns = i / 32 / (kConvertedRows / 8);
    const long long row =
        ((long long)head_of_all * (C::kDepth / 16) + columns) * C::kPaddedRows + first + eight * 8;
    const float4 four = sums_of_lane<C>(sums, row, lane);
    float* const to = tile + (eight * 8 + lane % 4 * 2) * kStride + columns * 16 + lane / 4;
    to[0] = four.x, to[kStride] = four.y, to[8] = four.z, to[kStride + 8] = four.w;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kConvertedRows * C::kDepth / 8; i += blockDim.x) {
    const int row = i / (C::kDepth / 8), column = i % (C::kDepth / 8) * 8;
    if (first + row >= rows || column >= P::kColumns) continue;
    unsigned pairs[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float* from = tile + row * kStride + column + 2 * j;
      pairs[j] = stored.rounded(from[0] * factor, from[1] * factor, true);
    }
    P::store(dq + P::place(row_starts, b, h, first + row) + column * P::kColumn, column, pairs);
  }
  stored.store_largest(amax);
}

// Columns of dK or dV: 8 of a key.
struct KeyColumns {
  int b, h, key, first;

  template <class C, class P, class E>
  __device__ bool exist(const E& expressions) const {
    return key < (P::kPacked ? expressions.keys(b) : C::kColumns) && first < P::kColumns;
  }
  template <class P, typename Bits>
  __device__ void store(const int* column_starts, Bits* to, const unsigned (&pairs)[4]) const {
    P::store(to + P::place(column_starts, b, h, key) + first * P::kColumn, first, pairs);
  }
};

// The sum of four columns of all parts from `first` on, of which this thread has each kThreads-th.
// Their order is always the same.
template <int kPart, int kThreads>
ATTN_INLINE float4 sum_of_parts(const float* first, int part, int parts) {
  float4 sum{0, 0, 0, 0};
#pragma unroll 1
  for (; part < parts; part += kThreads) {
    const float4 x = *reinterpret_cast<const float4*>(first + (long long)part * kPart);
    sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
  }
#pragma unroll
  for (int away = 2; away < 2 * kThreads; away *= 2) {
    sum.x += __shfl_xor_sync(~0u, sum.x, away), sum.y += __shfl_xor_sync(~0u, sum.y, away);
    sum.z += __shfl_xor_sync(~0u, sum.z, away), sum.w += __shfl_xor_sync(~0u, sum.w, away);
  }
  return sum;
}

// Adds dK and dV of the parts of blocks of keys. Many blocks of threads do so, kMergersOfPart of
// them for each part: each adds an equal share of the part's keys. Eight threads add 8 columns of a
// key, four parts of either half at a time.
constexpr int kMergersOfPart = 8;
// Gradients that it makes; those that are not wanted are null.
template <class C>
struct MergedGradients {
  GradientBits<C>*dk, *dv;
  unsigned *amax_dk, *amax_dv;  // with kNarrow
};
template <class C, class E, class L>
ATTN_INLINE void merge_parts(const float* sums, const int* column_starts, const E& expressions,
                             const L& lists, const MergedGradients<C>& to, int block, int blocks) {
  constexpr int kThreads = 4, kRow = C::kDepth + C::kWidth, kPart = C::kKeys * kRow;
  const int at_once = blockDim.x / (2 * kThreads), half = threadIdx.x & 1;
  const GradientFactors<C, E> factors{expressions};
  StoredGradient<C> keys = factors.stored_keys(), values = factors.stored_values();
#pragma unroll 1
  for (int n = block; n < kMergersOfPart * lists.parts(); n += blocks) {
    const Part of = lists.part(n / kMergersOfPart);
    if (of.parts == 1) continue;
    const float* const first = sums + (long long)(n / kMergersOfPart - of.part) * kPart + half * 4;
    const int mergers = kMergersOfPart * of.parts;
    const int merger = kMergersOfPart * of.part + n % kMergersOfPart;
#pragma unroll 1
    for (int i = merger * at_once + threadIdx.x / (2 * kThreads); i < kPart / 8;
         i += mergers * at_once) {
      const float4 sum =
          sum_of_parts<kPart, kThreads>(first + i * 8, threadIdx.x / 2 % kThreads, of.parts);
      const int column = i % (kRow / 8) * 8, key = i / (kRow / 8);
      const bool of_keys = column < C::kDepth;
      const KeyColumns at{of.unit / C::kKeyHeads, of.unit % C::kKeyHeads,
                          lists.tile(of.tile).tile * C::kKeys + key,
                          of_keys ? column : column - C::kDepth};
      const bool exist = of_keys ? at.exist<C, typename C::Keys>(expressions)
                                 : at.exist<C, typename C::Values>(expressions);
      StoredGradient<C>& gradient = of_keys ? keys : values;
      unsigned pairs[4] = {gradient.rounded(sum.x, sum.y, exist),
                           gradient.rounded(sum.z, sum.w, exist)};
      pairs[2] = __shfl_xor_sync(~0u, pairs[0], 1), pairs[3] = __shfl_xor_sync(~0u, pairs[1], 1);
      if (threadIdx.x % (2 * kThreads) != 0 || !exist) continue;
      if (of_keys && to.dk != nullptr) at.store<typename C::Keys>(column_starts, to.dk, pairs);
      if (!of_keys && to.dv != nullptr) at.store<typename C::Values>(column_starts, to.dv, pairs);
    }
  }
  if (to.dk != nullptr) keys.store_largest(to.amax_dk);
  if (to.dv != nullptr) values.store_largest(to.amax_dv);
}

}  // namespace kernels
