#include "attn/backward.cuh"
static __device__ const kernels::Tile kTiles[] = {
    {0, 0, 2, 2}, {1, 2, 2, 2},
};
static __device__ const kernels::Run kRuns[] = {
    {1, 1}, {64, 1}, {33, 1}, {96, 1},
};
struct Lists {
  __device__ kernels::Tile tile(int i) const { return kTiles[i]; }
  __device__ kernels::Run run(int i) const { return kRuns[i]; }
};
struct Constants : kernels::BackwardDefaults {
  using Float = kernels::F16;
  using Entry = kernels::F16;
  static constexpr int kBlockRows = 64;
  static constexpr int kKeys = 128;
  static constexpr int kDepth = 64;
  static constexpr int kWidth = 64;
  static constexpr int kBatches = 1;
  static constexpr int kHeads = 2;
  static constexpr int kKeyHeads = 2;
  static constexpr int kHeadsOfKey = 1;
  static constexpr int kHeadsOfClass = 2;
  static constexpr int kRows = 100;
  static constexpr int kColumns = 200;
  static constexpr int kPaddedRows = 176;
  static constexpr int kRowBlocks = 2;
  static constexpr int kKeyBlocks = 2;
  static constexpr int kItems = 4;
  static constexpr int kSection = 1;
  using Queries = kernels::Places<12800, 6400, 64, 1, 64, true, false>;
  using Keys = kernels::Places<25600, 12800, 64, 1, 64, true, false>;
  using Values = kernels::Places<25600, 12800, 64, 1, 64, true, false>;
  using Outputs = kernels::Places<12800, 6400, 64, 1, 64, true, false>;
  using Statistics = kernels::Places<200, 100, 1, 0, 0, false, false>;
};
struct Expressions : kernels::Reals {
  static constexpr bool kScore = true, kMask = true, kReadsTensors = false, kFiniteSlope = false;
  static constexpr bool kKeep = false, kRandom = false, kSigmoid = false;
  static constexpr int kParts = 0, kHeld = 0;
  static constexpr float kKeptScale = 1;
  const float* t_t;
  float p_c;
  __device__ float scale() const {
    return 0.125f;
  }
  __device__ float weight() const { return 1.0f; }
  __device__ kernels::Scored evaluate(int b, int h, int row, int column, float entry, float product) const {
    const float score = product * 0.125f;
    const float v2 = (float)p_c;
    const float v4 = (float)t_t[h];
    const int v7 = attn_wrap((long long)column - row);
    const float v8 = (float)v7;
    const float v9 = v4 * v8;
    const float v10 = score + v9;
    const float v11 = tanh(v10);
    const float v12 = v2 * v11;
    const float v14 = v11 * v11;
    const float v15 = 1.0f - v14;
    const float v16 = v15 * v2;
    return kernels::Scored{(float)(v12), (float)(v16)};
  }
  __device__ bool mask(int b, int h, int row, int column) const {
    const int v3 = (int)((unsigned)column / 3u);
    const bool v4 = v3 <= row;
    return v4;
  }
  __device__ int keys(int b) const { return 200; }
  __device__ int queries(int b) const { return 100; }
  __device__ int used_keys(int b) const { return keys(b); }
  __device__ int used_queries(int b) const { return queries(b); }
};
static_assert(kernels::BackwardStages<Constants>::kBytes + 1024 == 117072, "");
extern "C" __global__ void attn_prepare(const unsigned short* o, const unsigned short* d_o,
                                        const float* lse, float* exponents,
                                        float* deltas, const float* t_t, float p_c) {
  const Expressions expressions{{}, kernels::aligned(t_t), p_c};
  kernels::prepare<Constants>(o, d_o, lse, nullptr, expressions, exponents, deltas);
}
extern "C" __global__ void __launch_bounds__(384, 1) attn_backward(
    const __grid_constant__ kernels::TensorMap q,
    const __grid_constant__ kernels::TensorMap k,
    const __grid_constant__ kernels::TensorMap v,
    const __grid_constant__ kernels::TensorMap d_o,
    const float* exponents,
    const float* deltas,
    float* sums,
    unsigned short* dk,
    unsigned short* dv,
    int* counter, const float* t_t, float p_c) {
  const Expressions expressions{{}, kernels::aligned(t_t), p_c};
  kernels::BackwardTensors tensors;
  tensors.q = &q;
  tensors.k = &k;
  tensors.v = &v;
  tensors.d_o = &d_o;
  tensors.exponents = exponents;
  tensors.deltas = deltas;
  tensors.query_sums = sums;
  tensors.dk = dk;
  tensors.dv = dv;
  tensors.counter = counter;
  kernels::backward<Constants>(tensors, expressions, Lists{});
}
extern "C" __global__ void __launch_bounds__(256, 8) attn_convert(
    const float* sums,
    unsigned short* dq, const float* t_t, float p_c) {
  const Expressions expressions{{}, kernels::aligned(t_t), p_c};
  kernels::convert<Constants>(sums, nullptr, expressions, dq, nullptr, blockIdx.x - 0);
}
