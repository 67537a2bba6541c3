// Outputs of batches without keys or rows, according to lengths.
#pragma once

#include "attn/values.cuh"

namespace kernels {

// Thread i zeroes row i of [B,H,S] where the batch has no keys or, with `lengths_q`, no rows.
struct EmptyRows {
  long long rows = 1;  // B H S
  long long H = 1, S = 1, D = 1;
  const int* lengths_q = nullptr;   // [B]; null: not looked at
  const int* lengths_kv = nullptr;  // [B]
  const int* starts = nullptr;      // [B+1], of [T,H,D]; null: [B,H,S,D]
  // One of the two: elements of 16 bits, or of 8.
  unsigned short* out = nullptr;
  unsigned char* out_8 = nullptr;
  long long batch_stride = 0, head_stride = 0, row_stride = 0, stride = 1;
  bool in_vectors = false;  // rows are contiguous and aligned to 16 bytes
  // Statistics of the row, if not null.
  float *lse = nullptr, *max = nullptr, *sum_exp = nullptr;

  __device__ void run(long long i) const {
    if (i < 0 || i >= rows) return;
    const long long s = i % S, h = i / S % H, b = i / S / H;
    if ((!lengths_q || lengths_q[b] > 0) && lengths_kv[b] > 0) return;
    if (starts && s >= starts[b + 1] - starts[b]) return;
    const long long row = starts ? starts[b] + s : s;
    const long long at = (starts ? 0 : b * batch_stride) + row * row_stride + h * head_stride;
    if (out) zero(out + at);
    if (out_8) zero(out_8 + at);
    const long long place = starts ? row * H + h : i;
    if (lse) lse[place] = nothing();
    if (max) max[place] = nothing();
    if (sum_exp) sum_exp[place] = 0;
  }

  __device__ void zero(unsigned char* row) const {
    for (int d = 0; d < D; ++d) row[d * stride] = 0;
  }

  __device__ void zero(unsigned short* row) const {
    if (in_vectors) {
      for (int d = 0; d < D / 8; ++d) ((uint4*)row)[d] = uint4{};
    } else {
      for (int d = 0; d < D; ++d) row[d * stride] = 0;
    }
  }
};

}  // namespace kernels
