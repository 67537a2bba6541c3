// What the forward kernel reads and writes.
#pragma once

#include "attn/hopper.cuh"
#include "attn/lengths.cuh"

namespace kernels {

// Strides of keys or values in pages, in elements or in steps of their map, and of the rows of
// their page table.
struct PoolStrides {
  long long page = 0, head = 0, row = 0, table = 0;
};
struct RowStrides {
  long long head = 0, row = 0;
};

// Where q, k, v are read, and what is written; pointers may be null. For the map of a packed tensor
// (kThdQ, ..) see packed_rows.cuh.
struct ForwardTensors {
  const TensorMap *q = nullptr, *k = nullptr, *v = nullptr, *table = nullptr;
  void *o = nullptr, *o_inner = nullptr;  // o_inner: before an epilogue
  float *lse = nullptr, *max = nullptr, *sum_exp = nullptr;
  float *max_with_sink = nullptr, *sum_exp_with_sink = nullptr, *lse_without_sink = nullptr;
  int* counter = nullptr;  // 0 at first, and so are those of parts behind it
  // The pages of each batch, [kBatches, kKeyPages] and [kBatches, kValuePages], if keys or values
  // are in pages.
  const int *key_table = nullptr, *value_table = nullptr;
  // The keys of each row, [kBatches, kColumns], if lists name them, and how many keys each batch of
  // the cache has; null: all.
  const int *chosen = nullptr, *cache_lengths = nullptr;
  // Strides that are known at run time alone (kBoundKeys, kBoundQueries, ..); `table` of all pages,
  // the others of those that are read row by row or in groups.
  PoolStrides key_strides, value_strides;
  RowStrides query_strides, output_strides;
  // The first row of each batch, if q or o is packed; the first key, if k or v is.
  const int *row_starts = nullptr, *column_starts = nullptr;
  float* parts = nullptr;   // what warps have of each, if there are parts
  int* schedule = nullptr;  // kScheduled
  // Keys and values that are read row by row (kGatherKeys, kGatherValues); in mma_forward.cuh these
  // and queries always are.
  const unsigned short *query_rows = nullptr, *key_rows = nullptr, *value_rows = nullptr;
  const unsigned short* table_rows = nullptr;  // kWalks
  // The same of 8 bits (kWidens, kNarrow).
  const unsigned char* query_bytes = nullptr;
  const unsigned char *key_bytes = nullptr, *value_bytes = nullptr;
  const float *key_scales = nullptr, *value_scales = nullptr;  // kTokenScales
  // Scales of 8-bit floats. scale_o may be null, and so may amax_s and amax_o, which are 0 before.
  const float *descale_v = nullptr, *descale_s = nullptr;
  const float *scale_s = nullptr, *scale_o = nullptr;
  unsigned *amax_s = nullptr, *amax_o = nullptr;  // bits of floats
};

}  // namespace kernels
