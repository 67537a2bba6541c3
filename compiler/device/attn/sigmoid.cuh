// Weights that are the sigmoid of a score each, and their backward.
#pragma once

#include "attn/rows.cuh"

namespace kernels {

// 0 for -inf.
static __device__ float sigmoid_of(float x) { return 1 / (1 + expf(-x)); }

// Element: F16 or BF16.
template <typename Element>
struct Sigmoid : Rows {
  const float* scores = nullptr;  // [rows,Skv], -inf where hidden
  const int* kept = nullptr;      // [rows,Skv]; null: no dropout
  double keep_scale = 1;          // 1 / (1 - probability)
  long long columns = 1;
  unsigned short* weights = nullptr;  // made: [rows,columns], 0 past Skv

  __device__ void run(long long i) const {
    const Row row = row_of(i);
    const float* x = scores + row.r * Skv;
    for (long long c = row.lane; c < columns && row.live; c += lanes) {
      const bool seen = c < row.visible && (!kept || kept[row.r * Skv + c] != 0);
      weights[row.r * columns + c] =
          Element::narrow(seen ? (float)keep_scale * sigmoid_of(x[c]) : 0);
    }
  }
};

// dS' = P (1 - P) keep do v^T. Element: F16 or BF16.
template <typename Element>
struct SigmoidGradients : Rows {
  const float* scores = nullptr;      // [rows,Skv], -inf where hidden
  const int* kept = nullptr;          // [rows,Skv]; null: no dropout
  double keep_scale = 1;              // 1 / (1 - probability)
  const float* cotangents = nullptr;  // [rows,columns], do v^T
  long long columns = 1;
  float* modified = nullptr;          // made: [rows,columns], dS', 0 where hidden and past Skv
  unsigned short* weights = nullptr;  // made, if not null: P keep, 0 likewise

  __device__ void run(long long i) const {
    const Row row = row_of(i);
    const float* x = scores + row.r * Skv;
    for (long long c = row.lane; c < columns && row.live; c += lanes) {
      const bool seen = c < row.visible && x[c] != nothing();
      const bool through = seen && (!kept || kept[row.r * Skv + c] != 0);
      const float weight = through ? (float)keep_scale * sigmoid_of(x[c]) : 0;
      const long long at = row.r * columns + c;
      modified[at] = through ? weight * sigmoid_of(-x[c]) * cotangents[at] : 0;
      if (weights) weights[at] = Element::narrow(weight);
    }
  }
};

}  // namespace kernels
