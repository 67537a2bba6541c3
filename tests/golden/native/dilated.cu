#include "attn/forward.cuh"
static __device__ const kernels::Tile kTiles[] = {
    {0, 0, 1, 1}, {1, 0, 1, 1}, {2, 0, 1, 1}, {3, 1, 1, 1}, {4, 2, 1, 1}, {5, 3, 1, 1},
    {6, 4, 1, 1}, {7, 5, 1, 1},
};
static __device__ const kernels::Run kRuns[] = {
    {1, 1}, {33, 1}, {65, 1}, {97, 1}, {129, 1}, {161, 1},
};
struct Lists {
  __device__ kernels::Tile tile(int i) const { return kTiles[i]; }
  __device__ kernels::Run run(int i) const { return kRuns[i]; }
};
struct Constants : kernels::ForwardDefaults {
  using Float = kernels::BF16;
  using Output = kernels::BF16;
  static constexpr int kGroups = 2;
  static constexpr int kKeys = 176;
  static constexpr int kDepth = 64;
  static constexpr int kWidth = 64;
  static constexpr int kStored = 64;
  static constexpr int kDepthPanel = 64;
  static constexpr int kWidthPanel = 64;
  static constexpr int kShares = 1;
  static constexpr int kShare = 64;
  static constexpr int kStages = 2;
  static constexpr int kQueries = 2;
  static constexpr int kPack = 4;
  static constexpr int kRowsOfTile = 32;
  static constexpr int kBatches = 2;
  static constexpr int kUnits = 8;
  static constexpr int kHeadsOfKey = 4;
  static constexpr int kRows = 256;
  static constexpr int kColumns = 256;
  static constexpr int kTiles = 8;
  static constexpr int kSplits = 1;
  static constexpr int kItems = 128;
  static constexpr int kSection = 1;
  static constexpr bool kTurns = true;
  static constexpr bool kOneTurn = true;
  static constexpr bool kLazy = true;
  static constexpr bool kAligned = true;
  static constexpr long long kOutputBatch = 524288;
  static constexpr long long kOutputHead = 64;
  static constexpr long long kOutputRow = 2048;
  static constexpr long long kOutputColumn = 1;
  static constexpr long long kStatisticsBatch = 8192;
  static constexpr long long kStatisticsHead = 1024;
  static constexpr long long kStatisticsClass = 1;
  static constexpr long long kStatisticsRow = 4;
  static constexpr int kHeadsOfClass = 8;
};
struct Expressions : kernels::Reals {
  static constexpr bool kScore = false, kBounded = false, kMask = true, kKeep = false, kSink = true;
  static constexpr bool kReadsColumns = false, kRandom = false, kSigmoid = false;
  static constexpr bool kMasksByIndices = false;
  static constexpr int kColumnPeriod = 16, kPolynomials = 0;
  static constexpr float kKeptScale = 1;
  const float* t_s;
  __device__ float weight() const {
    return 0.125f;
  }
  __device__ bool mask(int b, int h, int row, int column) const {
    const int v2 = attn_wrap((long long)row * 4);
    const int v4 = attn_wrap((long long)column * 4);
    const int v5 = attn_wrap((long long)v2 - v4);
    const bool v7 = v5 >= (-256);
    const bool v9 = v5 <= 256;
    return v7 && v9;
  }
  __device__ float sink(int h) const {
    const int v2 = h & 7;
    const float v3 = (float)t_s[v2];
    return v3;
  }
  __device__ int keys(int b) const { return 256; }
  __device__ int queries(int b) const { return 256; }
  __device__ int used_keys(int b) const { return keys(b); }
  __device__ int used_queries(int b) const { return queries(b); }
};
static_assert(kernels::Stages<Constants>::kBytes + 1024 == 124032, "");
extern "C" __global__ void __launch_bounds__(384, 1) attn_forward(
    const __grid_constant__ kernels::TensorMap q,
    const __grid_constant__ kernels::TensorMap k,
    const __grid_constant__ kernels::TensorMap v,
    unsigned short* o,
    float* lse, const float* t_s) {
  const Expressions expressions{{}, kernels::aligned(t_s)};
  kernels::ForwardTensors tensors;
  tensors.q = &q;
  tensors.k = &k;
  tensors.v = &v;
  tensors.o = o;
  tensors.lse = lse;
  kernels::forward<Constants>(tensors, expressions, Lists{});
}
