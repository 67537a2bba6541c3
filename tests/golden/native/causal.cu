#include "attn/forward.cuh"
static __device__ const kernels::Tile kTiles[] = {
    {5, 8, 2, 4}, {6, 8, 2, 4}, {3, 4, 2, 3}, {4, 6, 2, 3}, {1, 1, 1, 2}, {2, 2, 2, 2},
    {0, 0, 1, 1},
};
static __device__ const kernels::Run kRuns[] = {
    {1, 1}, {1, 2}, {0, 1}, {81, 1}, {0, 1}, {81, 2},
    {0, 2}, {161, 1}, {0, 3}, {241, 1},
};
struct Lists {
  __device__ kernels::Tile tile(int i) const { return kTiles[i]; }
  __device__ kernels::Run run(int i) const { return kRuns[i]; }
};
struct Constants : kernels::ForwardDefaults {
  using Float = kernels::BF16;
  using Output = kernels::BF16;
  static constexpr int kGroups = 3;
  static constexpr int kKeys = 80;
  static constexpr int kDepth = 128;
  static constexpr int kWidth = 128;
  static constexpr int kStored = 128;
  static constexpr int kDepthPanel = 64;
  static constexpr int kWidthPanel = 64;
  static constexpr int kShares = 1;
  static constexpr int kShare = 128;
  static constexpr int kStages = 3;
  static constexpr int kQueries = 1;
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
  static constexpr bool kScore = false, kBounded = false, kMask = true, kKeep = false, kSink = false;
  static constexpr bool kReadsColumns = false, kRandom = false, kSigmoid = false;
  static constexpr bool kMasksByIndices = false;
  static constexpr int kColumnPeriod = 16, kPolynomials = 0;
  static constexpr float kKeptScale = 1;
  __device__ float weight() const {
    return 0.08838834764831843f;
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
static_assert(kernels::Stages<Constants>::kBytes + 1024 == 173196, "");
extern "C" __global__ void __launch_bounds__(512, 1) attn_forward(
    const __grid_constant__ kernels::TensorMap q,
    const __grid_constant__ kernels::TensorMap k,
    const __grid_constant__ kernels::TensorMap v,
    unsigned short* o) {
  const Expressions expressions{{}};
  kernels::ForwardTensors tensors;
  tensors.q = &q;
  tensors.k = &k;
  tensors.v = &v;
  tensors.o = o;
  kernels::forward<Constants>(tensors, expressions, Lists{});
}
