// Weights that are a function of their score each, and their backward.
#pragma once

#include "attn/rows.cuh"

namespace kernels {

// Functions of scores. Of a weight, `slope` is the derivative by the score.
struct SigmoidOf {
  static __device__ float weight(float x) { return 1 / (1 + expf(-x)); }
  static __device__ float slope(float x) { return weight(x) * weight(-x); }
};
struct ItselfOf {
  static __device__ float weight(float x) { return x; }
  static __device__ float slope(float) { return 1; }
};

// Element: F16 or BF16.
template <typename Element, typename Function>
struct Pointwise : Rows {
  const float* scores = nullptr;  // [rows,Skv], -inf where hidden
  const int* kept = nullptr;      // [rows,Skv]; null: no dropout
  double keep_scale = 1;          // 1 / (1 - probability)
  long long columns = 1;
  unsigned short* weights = nullptr;  // made: [rows,columns], 0 past Skv

  __device__ void run(long long i) const {
    const Row row = row_of(i);
    const float* x = scores + row.r * Skv;
    for (long long c = row.lane; c < columns && row.live; c += lanes) {
      const bool seen = c < row.visible && x[c] != nothing();
      const bool through = seen && (!kept || kept[row.r * Skv + c] != 0);
      weights[row.r * columns + c] =
          Element::narrow(through ? (float)keep_scale * Function::weight(x[c]) : 0);
    }
  }
};

// dS' = slope keep do v^T. Element: F16 or BF16.
template <typename Element, typename Function>
struct PointwiseGradients : Rows {
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
      const float factor = through ? (float)keep_scale : 0;
      const long long at = row.r * columns + c;
      modified[at] = through ? factor * Function::slope(x[c]) * cotangents[at] : 0;
      if (weights) weights[at] = Element::narrow(through ? factor * Function::weight(x[c]) : 0);
    }
  }
};

}  // namespace kernels
