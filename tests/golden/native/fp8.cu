#include "attn/forward.cuh"
#include "attn/transposed_values.cuh"
static __device__ const kernels::Tile kTiles[] = {
    {6, 5, 2, 4}, {4, 3, 2, 3}, {5, 3, 2, 3}, {2, 1, 2, 2}, {3, 1, 2, 2}, {0, 0, 1, 1},
    {1, 0, 1, 1},
};
static __device__ const kernels::Run kRuns[] = {
    {1, 1}, {0, 1}, {97, 1}, {0, 2}, {193, 1}, {0, 3},
    {289, 1},
};
struct Lists {
  __device__ kernels::Tile tile(int i) const { return kTiles[i]; }
  __device__ kernels::Run run(int i) const { return kRuns[i]; }
};
struct Constants : kernels::ForwardDefaults {
  using Float = kernels::E4M3;
  using Output = kernels::E4M3;
  static constexpr int kGroups = 3;
  static constexpr int kKeys = 96;
  static constexpr int kDepth = 128;
  static constexpr int kWidth = 128;
  static constexpr int kStored = 128;
  static constexpr int kDepthPanel = 128;
  static constexpr int kWidthPanel = 128;
  static constexpr int kShares = 1;
  static constexpr int kShare = 128;
  static constexpr int kStages = 4;
  static constexpr int kQueries = 2;
  static constexpr int kPack = 4;
  static constexpr int kRowsOfTile = 48;
  static constexpr int kBatches = 2;
  static constexpr int kUnits = 2;
  static constexpr int kHeadsOfKey = 4;
  static constexpr int kRows = 300;
  static constexpr int kColumns = 400;
  static constexpr int kTiles = 7;
  static constexpr int kSplits = 1;
  static constexpr int kItems = 28;
  static constexpr int kSection = 8;
  static constexpr bool kTurns = true;
  static constexpr bool kOneTurn = true;
  static constexpr bool kLazy = true;
  static constexpr bool kAmaxOfWeights = true;
  static constexpr bool kAmaxOfOutputs = true;
  static constexpr bool kOverlaps = true;
  static constexpr bool kAligned = true;
  static constexpr long long kOutputBatch = 307200;
  static constexpr long long kOutputHead = 128;
  static constexpr long long kOutputRow = 1024;
  static constexpr long long kOutputColumn = 1;
  static constexpr long long kStatisticsBatch = 2400;
  static constexpr long long kStatisticsHead = 300;
  static constexpr long long kStatisticsRow = 1;
};
struct Expressions : kernels::Reals {
  static constexpr bool kScore = true, kBounded = false, kMask = true, kKeep = false, kSink = false;
  static constexpr bool kReadsColumns = false, kRandom = false, kSigmoid = false;
  static constexpr bool kMasksByIndices = false;
  static constexpr int kColumnPeriod = 16, kPolynomials = 0;
  static constexpr float kKeptScale = 1;
  const float* t_descale_q;
  const float* t_descale_k;
  const float* t_descale_v;
  const float* t_descale_s;
  const float* t_scale_s;
  const float* t_scale_o;
  __device__ float scale() const {
    return 0.08838834764831843f * (*t_descale_q * *t_descale_k);
  }
  __device__ float weight() const {
    return 1.0f;
  }
  struct Lines {
    float shift, slope;
  };
  __device__ Lines lines(int b, int h, int row, int column) const {
    const int v3 = attn_wrap((long long)column - row);
    const float v4 = (float)v3;
    const float v5 = 0.5f * v4;
    const int v8 = attn_wrap((long long)1 - 0);
    const float v9 = (float)v8;
    const float v10 = 0.5f * v9;
    return Lines{(0.0f + v5) * 1.0f, (0.0f + v10) * 1.0f};
  }
  __device__ float score(int b, int h, int row, int column, float offset, const Lines& lines,
                         float entry, float product) const {
    const float score = product;
    return fmaf(lines.slope, offset, score);
  }
  __device__ bool mask(int b, int h, int row, int column) const {
    const bool v2 = row >= column;
    return v2;
  }
  __device__ int keys(int b) const { return 400; }
  __device__ int queries(int b) const { return 300; }
  __device__ int used_keys(int b) const { return keys(b); }
  __device__ int used_queries(int b) const { return queries(b); }
};
struct Values {
  static constexpr int kBatches = 2;
  static constexpr int kHeads = 2;
  static constexpr int kKeys = 400;
  static constexpr int kStored = 128;
  static constexpr int kPitch = 400;
  static constexpr int kVector = 16;
  static constexpr int kPage = 0;
  static constexpr int kPages = 0;
  static constexpr bool kPacked = false;
  static constexpr long long kBatchStride = 102400;
  static constexpr long long kHeadStride = 128;
  static constexpr long long kRowStride = 256;
  static constexpr long long kColumnStride = 1;
};
extern "C" __global__ void __launch_bounds__(256) attn_values(
    const unsigned char* v, unsigned char* values, unsigned* amax_s, unsigned* amax_o, const float* t_descale_q, const float* t_descale_k, const float* t_descale_v, const float* t_descale_s, const float* t_scale_s, const float* t_scale_o) {
  const Expressions expressions{{}, t_descale_q, t_descale_k, t_descale_v, t_descale_s, t_scale_s, t_scale_o};
  kernels::begin_next_launch();
  if (attn_thread() == 0) *amax_s = 0;
  if (attn_thread() == 0) *amax_o = 0;
  const kernels::TransposedValues<Values> transposed{v, values, nullptr, nullptr};
  transposed.run(expressions.keys(transposed.batch()));
}
static_assert(kernels::Stages<Constants>::kBytes + 1024 == 165064, "");
extern "C" __global__ void __launch_bounds__(512, 1) attn_forward(
    const __grid_constant__ kernels::TensorMap q,
    const __grid_constant__ kernels::TensorMap k,
    const __grid_constant__ kernels::TensorMap v,
    unsigned char* o,
    float* lse,
    unsigned* amax_s,
    unsigned* amax_o, const float* t_descale_q, const float* t_descale_k, const float* t_descale_v, const float* t_descale_s, const float* t_scale_s, const float* t_scale_o) {
  const Expressions expressions{{}, t_descale_q, t_descale_k, t_descale_v, t_descale_s, t_scale_s, t_scale_o};
  kernels::ForwardTensors tensors;
  tensors.q = &q;
  tensors.k = &k;
  tensors.v = &v;
  tensors.o = o;
  tensors.lse = lse;
  tensors.amax_s = amax_s;
  tensors.amax_o = amax_o;
  tensors.descale_v = t_descale_v;
  tensors.descale_s = t_descale_s;
  tensors.scale_s = t_scale_s;
  tensors.scale_o = t_scale_o;
  kernels::forward<Constants>(tensors, expressions, Lists{});
}
