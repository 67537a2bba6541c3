// The backward of softmax.
#pragma once

#include "attn/rows.cuh"

namespace kernels {

// The packed copies of o and do, of rows of [B,Hq,Sq].
template <typename Element>
struct BoundOutputs {
  const unsigned short *o = nullptr, *d_o = nullptr;  // [rows,stride], of which Dv are used
  long long Dv = 1, stride = 1;

  // The share of a lane in the sum of do o.
  __device__ double share(const Row& row, int lanes) const {
    double sum = 0;
    for (long long d = row.lane; d < Dv; d += lanes) {
      const long long at = row.whole * stride + d;
      sum += Element::value(o[at]) * Element::value(d_o[at]);
    }
    return sum;
  }
};

// dS' = P keep (do v^T - delta). P is exp(score - lse) divided by its sum over the row, delta the
// sum of P keep do v^T, in double, minus dlse. If rows have more keys than these, P is exp(score -
// lse), and delta the sum of do o, minus dlse. Element: F16 or BF16.
template <typename Element>
struct SoftmaxGradients : Rows {
  const float* scores = nullptr;      // [rows,Skv], -inf where hidden
  const float* sinks = nullptr;       // [Hq]; null: none
  const int* kept = nullptr;          // [rows,Skv]; null: no dropout
  double keep_scale = 1;              // 1 / (1 - probability)
  const float* cotangents = nullptr;  // [rows,columns], do v^T
  const float* lse = nullptr;         // as bound
  const float* d_lse = nullptr;       // as lse; null: none
  BoundOutputs<Element> whole;        // null: rows have these keys alone
  long long columns = 1;
  float* modified = nullptr;          // made: [rows,columns], dS', 0 where hidden and past Skv
  unsigned short* weights = nullptr;  // made, if not null: P keep, 0 likewise
  float* lse_of_rows = nullptr;       // made, if not null: [rows], -inf in rows past the lengths
  float* deltas = nullptr;            // made, if not null: [rows], 0 in empty rows

  __device__ bool keeps(long long r, long long c) const { return !kept || kept[r * Skv + c] != 0; }

  __device__ void run(long long i) const {
    const Row row = row_of(i);
    const float* x = scores + row.r * Skv;
    const float* cotangent = cotangents + row.r * columns;
    const float bound = row.present ? lse[row.place] : nothing();
    const bool empty = bound == nothing();
    const bool partial = whole.o != nullptr;
    double total = 0, delta = partial && !empty ? whole.share(row, lanes) : 0;
    for (long long c = row.lane; c < row.visible && !empty && !partial; c += lanes) {
      if (x[c] == nothing()) continue;
      const double weight = expf(x[c] - bound);
      total += weight;
      if (keeps(row.r, c)) delta += weight * (keep_scale * cotangent[c]);
    }
    total = sum_over_lanes(total, lanes);
    delta = sum_over_lanes(delta, lanes);
    if (sinks) total += exp(sinks[row.h] - bound);
    const double factor = partial ? 1 : 1 / total;
    delta *= factor;
    if (d_lse && !empty) delta -= d_lse[row.place];
    for (long long c = row.lane; c < columns && row.live; c += lanes) {
      const bool seen = c < row.visible && !empty && x[c] != nothing();
      const bool through = seen && keeps(row.r, c);
      const double weight = seen ? expf(x[c] - bound) * factor : 0;
      const double gradient = through ? keep_scale * cotangent[c] : 0;
      modified[row.r * columns + c] = seen ? (float)(weight * (gradient - delta)) : 0;
      if (!weights) continue;
      weights[row.r * columns + c] = Element::narrow(through ? (float)(keep_scale * weight) : 0);
    }
    if (row.lane != 0 || !row.live) return;
    if (lse_of_rows) lse_of_rows[row.r] = bound;
    if (deltas) deltas[row.r] = empty ? 0 : (float)delta;
  }
};

// delta as the sum of do o, minus dlse, for programs without do v^T.
template <typename Element>
struct RowDeltas : Rows {
  BoundOutputs<Element> whole;
  const float* lse = nullptr;    // as bound
  const float* d_lse = nullptr;  // as lse; null: none
  float* lse_of_rows = nullptr;  // made: [rows], -inf in rows past the lengths
  float* deltas = nullptr;       // made: [rows], 0 in empty rows

  __device__ void run(long long i) const {
    const Row row = row_of(i);
    const float bound = row.present ? lse[row.place] : nothing();
    const bool empty = bound == nothing();
    double delta = sum_over_lanes(empty ? 0 : whole.share(row, lanes), lanes);
    if (d_lse && !empty) delta -= d_lse[row.place];
    if (row.lane != 0 || !row.live) return;
    lse_of_rows[row.r] = bound;
    deltas[row.r] = empty ? 0 : (float)delta;
  }
};

}  // namespace kernels
