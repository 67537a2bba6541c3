// What the forward kernel reads and writes.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// Where q, k, v are read, and what is written; pointers may be null. A packed tensor (kThdQ, ..)
// has a map for each batch (sequence_maps.cuh).
struct ForwardTensors {
  const TensorMap *q, *k, *v, *table;
  void* o;
  float *lse, *max, *sum_exp, *max_with_sink, *sum_exp_with_sink;
  int* counter;  // 0 at first, and so are those of parts behind it
  // The pages of each batch, [kBatches, kKeyPages] and [kBatches, kValuePages], if keys or values
  // are in pages.
  const int *key_table, *value_table;
  const int* row_starts;  // the first row of each batch, if o is packed
  float* parts;           // what warps have of each, if there are parts
  // Keys and values that are read row by row (kGatherKeys, kGatherValues).
  const unsigned short *key_rows, *value_rows;
  // Scales of 8-bit floats. scale_o may be null, and so may amax_s and amax_o, which are 0 before.
  const float *descale_v, *descale_s, *scale_s, *scale_o;
  unsigned *amax_s, *amax_o;  // bits of floats
};

}  // namespace kernels
