// The sums of do o of an 8-bit attention.
#pragma once

#include "attn/rows.cuh"

namespace kernels {

// delta as the sum of do o, each times its scale. Stored: the type of o; Narrow: that of do.
template <typename Stored, typename Narrow>
struct NarrowDeltas : Rows {
  const typename Stored::Bits* o = nullptr;
  const typename Narrow::Bits* d_o = nullptr;
  long long Dv = 1, batch = 0, head = 0, row = 0, column = 1;  // strides of both, in elements
  const float *descale_o = nullptr, *descale_do = nullptr;     // descale_o may be null: 1
  const float* lse = nullptr;                                  // as bound
  float* lse_of_rows = nullptr;  // made: [rows], -inf in rows past the lengths
  float* deltas = nullptr;       // made: [rows], 0 in empty rows

  __device__ void run(long long i) const {
    const Row of = row_of(i);
    const float bound = of.present ? lse[of.place] : nothing();
    double sum = 0;
    const long long first =
        row_starts ? (row_starts[of.b] + of.s) * row : of.b * batch + of.s * row;
    for (long long d = of.lane; bound != nothing() && d < Dv; d += lanes) {
      const long long at = first + of.h * head + d * column;
      sum += Stored::value(o[at]) * Narrow::value(d_o[at]);
    }
    sum = sum_over_lanes(sum, lanes) * *descale_do * (descale_o ? *descale_o : 1.0f);
    if (of.lane != 0 || !of.live) return;
    lse_of_rows[of.r] = bound;
    deltas[of.r] = (float)sum;
  }
};

}  // namespace kernels
