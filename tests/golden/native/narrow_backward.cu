#include "attn/backward.cuh"
#include "attn/backward_widening.cuh"
static __device__ const kernels::Tile kTiles[] = {
    {0, 0, 2, 5}, {1, 2, 2, 3}, {2, 4, 1, 1}, {3, 5, 0, 0},
};
static __device__ const kernels::Run kRuns[] = {
    {1, 2}, {128, 3}, {129, 2}, {256, 1}, {257, 1},
};
struct Lists {
  __device__ kernels::Tile tile(int i) const { return kTiles[i]; }
  __device__ kernels::Run run(int i) const { return kRuns[i]; }
};
static __device__ const kernels::Part kParts[] = {
    {0, 0, 0, 5}, {0, 0, 1, 5}, {0, 0, 2, 5}, {0, 0, 3, 5}, {0, 0, 4, 5}, {0, 1, 0, 3},
    {0, 1, 1, 3}, {0, 1, 2, 3}, {1, 0, 0, 5}, {1, 0, 1, 5}, {1, 0, 2, 5}, {1, 0, 3, 5},
    {1, 0, 4, 5}, {1, 1, 0, 3}, {1, 1, 1, 3}, {1, 1, 2, 3}, {2, 0, 0, 5}, {2, 0, 1, 5},
    {2, 0, 2, 5}, {2, 0, 3, 5}, {2, 0, 4, 5}, {2, 1, 0, 3}, {2, 1, 1, 3}, {2, 1, 2, 3},
    {3, 0, 0, 5}, {3, 0, 1, 5}, {3, 0, 2, 5}, {3, 0, 3, 5}, {3, 0, 4, 5}, {3, 1, 0, 3},
    {3, 1, 1, 3}, {3, 1, 2, 3},
};
struct DividedLists : Lists {
  __device__ int parts() const { return 32; }
  __device__ int most() const { return 1; }
  __device__ kernels::Part part(int i) const { return kParts[i]; }
};
struct Constants : kernels::BackwardDefaults {
  using Float = kernels::BF16;
  using Entry = kernels::BF16;
  using Narrow = kernels::E4M3;
  using NarrowGradient = kernels::E4M3;
  using Stored = kernels::E4M3;
  using Gradient = kernels::E4M3;
  static constexpr int kBlockRows = 64;
  static constexpr int kKeys = 128;
  static constexpr int kDepth = 128;
  static constexpr int kWidth = 128;
  static constexpr int kBatches = 2;
  static constexpr int kHeads = 8;
  static constexpr int kKeyHeads = 2;
  static constexpr int kHeadsOfKey = 4;
  static constexpr int kHeadsOfClass = 8;
  static constexpr int kRows = 300;
  static constexpr int kColumns = 400;
  static constexpr int kPaddedRows = 368;
  static constexpr int kRowBlocks = 5;
  static constexpr int kKeyBlocks = 4;
  static constexpr int kItems = 16;
  static constexpr int kDivided = 32;
  static constexpr int kSection = 4;
  static constexpr bool kNarrow = true;
  static constexpr bool kHeadsOutside = true;
  using Queries = kernels::Places<307200, 128, 1024, 1, 128, true, false>;
  using Keys = kernels::Places<102400, 128, 256, 1, 128, true, false>;
  using Values = kernels::Places<102400, 128, 256, 1, 128, true, false>;
  using Outputs = kernels::Places<307200, 128, 1024, 1, 128, true, false>;
  using NarrowQueries = kernels::Places<307200, 128, 1024, 1, 128, true, false>;
  using NarrowKeys = kernels::Places<102400, 128, 256, 1, 128, true, false>;
  using NarrowValues = kernels::Places<102400, 128, 256, 1, 128, true, false>;
  using QueryRows = kernels::Places<307200, 38400, 128, 1, 128, true, false>;
  using KeyRows = kernels::Places<102400, 51200, 128, 1, 128, true, false>;
  using ValueRows = kernels::Places<102400, 51200, 128, 1, 128, true, false>;
  using GradientRows = kernels::Places<307200, 38400, 128, 1, 128, true, false>;
  using Statistics = kernels::Places<2400, 300, 1, 0, 0, false, false>;
};
struct Expressions : kernels::Reals {
  static constexpr bool kScore = false, kMask = true, kReadsTensors = false, kFiniteSlope = true;
  static constexpr bool kKeep = false, kRandom = false, kSigmoid = false;
  static constexpr int kParts = 0, kHeld = 0;
  static constexpr float kKeptScale = 1;
  const float* t_descale_q;
  const float* t_descale_k;
  const float* t_descale_v;
  const float* t_descale_o;
  const float* t_descale_do;
  const float* t_scale_dq;
  const float* t_scale_dk;
  const float* t_scale_dv;
  __device__ float scale_of_attention() const {
    return 0.08838834764831843f;
  }
  __device__ float scale() const {
    return scale_of_attention() * (*t_descale_q * *t_descale_k);
  }
  __device__ float weight() const { return scale() == 0 ? 1e-30f : scale(); }
  __device__ float slope_factor() const { return *t_descale_do * *t_descale_v; }
  __device__ float slope_of_products() const { return scale_of_attention() * slope_factor(); }
  __device__ float query_factor() const { return slope_of_products() * *t_descale_k; }
  __device__ float key_factor() const { return slope_of_products() * *t_descale_q; }
  __device__ float value_factor() const { return kKeptScale * *t_descale_do; }
  __device__ float delta_factor() const { return *t_descale_v == 0 ? 0.0f : *t_descale_o / *t_descale_v; }
  __device__ float scale_dq() const { return *t_scale_dq; }
  __device__ float scale_dk() const { return *t_scale_dk; }
  __device__ float scale_dv() const { return *t_scale_dv; }
  __device__ bool mask(int b, int h, int row, int column) const {
    const bool v2 = row >= column;
    return v2;
  }
  __device__ int keys(int b) const { return 400; }
  __device__ int queries(int b) const { return 300; }
  __device__ int used_keys(int b) const { return keys(b); }
  __device__ int used_queries(int b) const { return queries(b); }
};
static_assert(kernels::BackwardStages<Constants>::kBytes + 1024 == 198992, "");
extern "C" __global__ void __launch_bounds__(256) attn_prepare(
    const unsigned char* q, const unsigned char* k, const unsigned char* v,
    const unsigned char* d_o, const void* o, const float* lse, unsigned short* query_rows,
    unsigned short* key_rows, unsigned short* value_rows, unsigned short* gradient_rows,
    float* exponents, float* deltas, unsigned* amax_dp, unsigned* amax_dq, unsigned* amax_dk, unsigned* amax_dv, const float* t_descale_q, const float* t_descale_k, const float* t_descale_v, const float* t_descale_o, const float* t_descale_do, const float* t_scale_dq, const float* t_scale_dk, const float* t_scale_dv) {
  const Expressions expressions{{}, t_descale_q, t_descale_k, t_descale_v, t_descale_o, t_descale_do, t_scale_dq, t_scale_dk, t_scale_dv};
  const kernels::NarrowTensors tensors{
      q, k, v, d_o, o, lse, query_rows, key_rows, value_rows, gradient_rows, exponents,
      deltas, nullptr, nullptr, {amax_dp, amax_dq, amax_dk, amax_dv}};
  kernels::Widener<Constants, Expressions>{tensors, expressions}.run();
}
extern "C" __global__ void __launch_bounds__(384, 1) attn_backward(
    const __grid_constant__ kernels::TensorMap q,
    const __grid_constant__ kernels::TensorMap k,
    const __grid_constant__ kernels::TensorMap v,
    const __grid_constant__ kernels::TensorMap d_o,
    const float* exponents,
    const float* deltas,
    float* sums,
    unsigned char* dk,
    unsigned char* dv,
    unsigned* amax_dp,
    unsigned* amax_dk,
    unsigned* amax_dv,
    float* key_sums,
    int* counter, const float* t_descale_q, const float* t_descale_k, const float* t_descale_v, const float* t_descale_o, const float* t_descale_do, const float* t_scale_dq, const float* t_scale_dk, const float* t_scale_dv) {
  const Expressions expressions{{}, t_descale_q, t_descale_k, t_descale_v, t_descale_o, t_descale_do, t_scale_dq, t_scale_dk, t_scale_dv};
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
  tensors.amax_dp = amax_dp;
  tensors.amax_dk = amax_dk;
  tensors.amax_dv = amax_dv;
  tensors.key_sums = key_sums;
  tensors.counter = counter;
  kernels::backward<Constants>(tensors, expressions, DividedLists{});
}
extern "C" __global__ void __launch_bounds__(256, 8) attn_convert(
    const float* sums,
    unsigned char* dq,
    unsigned* amax_dq,
    const float* key_sums,
    unsigned char* dk,
    unsigned* amax_dk,
    unsigned char* dv,
    unsigned* amax_dv, const float* t_descale_q, const float* t_descale_k, const float* t_descale_v, const float* t_descale_o, const float* t_descale_do, const float* t_scale_dq, const float* t_scale_dk, const float* t_scale_dv) {
  const Expressions expressions{{}, t_descale_q, t_descale_k, t_descale_v, t_descale_o, t_descale_do, t_scale_dq, t_scale_dk, t_scale_dv};
  if (blockIdx.x < 256) {
    kernels::merge_parts<Constants>(key_sums, nullptr, expressions, DividedLists{},
                                    {dk, dv, amax_dk, amax_dv}, blockIdx.x, 256);
    return;
  }
  kernels::convert<Constants>(sums, nullptr, expressions, dq, amax_dq, blockIdx.x - 256);
}
