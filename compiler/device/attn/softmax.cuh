// Softmax of a tensor of scores.
#pragma once

#include "attn/rows.cuh"

namespace kernels {

// Exponentials in f32, sums in double. Element: F16 or BF16.
template <typename Element>
struct Softmax : Rows {
  const float* scores = nullptr;  // [rows,Skv], -inf where hidden
  const float* sinks = nullptr;   // [Hq]; null: none
  const int* kept = nullptr;      // [rows,Skv]; null: no dropout
  double keep_scale = 1;          // 1 / (1 - probability)
  long long columns = 1;
  unsigned short* weights = nullptr;  // made: [rows,columns], 0 past Skv
  // The statistics of each row, which are made if not null.
  float *lse = nullptr, *max = nullptr, *sum_exp = nullptr;
  float *max_with_sink = nullptr, *sum_exp_with_sink = nullptr, *lse_without_sink = nullptr;

  __device__ void run(long long i) const {
    const Row row = row_of(i);
    const float* x = scores + row.r * Skv;
    float largest = nothing();
    for (long long c = row.lane; c < row.visible; c += lanes) {
      if (x[c] > largest || x[c] != x[c]) largest = x[c];
    }
    largest = largest_of_lanes(largest, lanes);
    const bool empty = largest == nothing();
    double sum = 0;
    for (long long c = row.lane; c < row.visible && !empty; c += lanes) sum += expf(x[c] - largest);
    sum = sum_over_lanes(sum, lanes);
    double top = largest, total = sum;
    if (sinks) {
      const double sink = sinks[row.h];
      top = sink > largest ? sink : largest;
      total = (empty ? 0 : sum * exp(largest - top)) + exp(sink - top);
    }
    const float factor = empty ? 0 : (float)(keep_scale * exp(largest - top) / total);
    for (long long c = row.lane; c < columns && row.live; c += lanes) {
      const bool seen = c < row.visible && !empty && (!kept || kept[row.r * Skv + c] != 0);
      weights[row.r * columns + c] = Element::narrow(seen ? expf(x[c] - largest) * factor : 0);
    }
    if (row.lane != 0 || !row.live || (row_starts && !row.present)) return;
    if (lse) {
      const bool none = sinks ? !row.present : empty;
      lse[row.place] = none ? nothing() : top + log(total);
    }
    if (lse_without_sink) lse_without_sink[row.place] = empty ? nothing() : largest + log(sum);
    if (max) max[row.place] = largest;
    if (sum_exp) sum_exp[row.place] = sum;
    if (max_with_sink) max_with_sink[row.place] = row.present ? top : nothing();
    if (sum_exp_with_sink) {
      sum_exp_with_sink[row.place] = row.present && top != nothing() ? total : 0;
    }
  }
};

}  // namespace kernels
