#include "attn/key_lists.cuh"
struct Lists {
  const kernels::Tile* tiles;
  const kernels::Run* runs;
  __device__ kernels::Tile tile(int i) const { return tiles[i]; }
  __device__ kernels::Run run(int i) const { return runs[i]; }
};
struct Constants : kernels::ForwardDefaults {
  using Float = kernels::BF16;
  using Output = kernels::BF16;
  static constexpr int kGroups = 2;
  static constexpr int kKeys = 128;
  static constexpr int kDepth = 128;
  static constexpr int kWidth = 128;
  static constexpr int kStored = 128;
  static constexpr int kDepthPanel = 64;
  static constexpr int kWidthPanel = 64;
  static constexpr int kShares = 1;
  static constexpr int kShare = 128;
  static constexpr int kStages = 2;
  static constexpr int kQueries = 2;
  static constexpr int kPack = 4;
  static constexpr int kRowsOfTile = 32;
  static constexpr int kBatches = 2;
  static constexpr int kUnits = 2;
  static constexpr int kHeadsOfKey = 4;
  static constexpr int kRows = 300;
  static constexpr int kColumns = 400;
  static constexpr int kTiles = 10;
  static constexpr int kSplits = 1;
  static constexpr int kItems = 40;
  static constexpr int kSection = 8;
  static constexpr int kLists = 1;
  static constexpr int kCellKeys = 32;
  static constexpr int kCells = 13;
  static constexpr int kMostRuns = 4;
  static constexpr int kTilesOfBlock = 1;
  static constexpr int kListsDone = 1;
  static constexpr bool kTurns = true;
  static constexpr bool kLazy = true;
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
  static constexpr bool kScore = false, kBounded = false, kMask = true, kKeep = false, kSink = false;
  static constexpr bool kReadsColumns = true, kRandom = true, kSigmoid = false;
  static constexpr bool kMasksByIndices = false;
  static constexpr int kColumnPeriod = 16, kPolynomials = 0;
  static constexpr float kKeptScale = 1.1111186463666882;
  const int* t_d;
  const long long* t_seed;
  const long long* t_offset;
  __device__ float weight() const {
    return 0.08838834764831843f;
  }
  __device__ bool mask(int b, int h, int row, int column) const {
    const int v1 = (int)t_d[row];
    const int v3 = (int)t_d[column];
    const bool v4 = v1 == v3;
    return v4;
  }
  static constexpr int kDropped = 3277;
  static constexpr bool kIsPart = false;
  __device__ const long long* seed() const { return t_seed; }
  __device__ const long long* offset() const { return t_offset; }
  __device__ int keys(int b) const { return 400; }
  __device__ int queries(int b) const { return 300; }
  __device__ int used_keys(int b) const { return keys(b); }
  __device__ int used_queries(int b) const { return queries(b); }
  static constexpr bool kIntervals = true;
  static constexpr int kRowValues = 1, kColumnValues = 1;
  __device__ void row_values(int b, int h, int row, int* values) const {
    const int v1 = (int)t_d[row];
    values[0] = v1;
  }
  __device__ void column_values(int b, int h, int column, int* values) const {
    const int v1 = (int)t_d[column];
    values[0] = v1;
  }
  __device__ kernels::Interval visible(int b, int h, const kernels::Interval* rows,
      const kernels::Interval* columns) const {
    const kernels::Interval i0 = kernels::equal(rows[0], columns[0]);
    return i0;
  }
};
extern "C" __global__ void __launch_bounds__(512, 1) attn_lists(
    kernels::Tile* tiles, kernels::Tile* sorted, kernels::Run* runs,
    int* counter, const int* t_d, const long long* t_seed, const long long* t_offset) {
  const Expressions expressions{{}, kernels::aligned(t_d), t_seed, t_offset};
  kernels::list_keys<Constants>(
      expressions, {tiles, sorted, runs, counter + Constants::kListsDone});
}
static_assert(kernels::Stages<Constants>::kBytes + 1024 == 197760, "");
extern "C" __global__ void __launch_bounds__(384, 1) attn_forward(
    const __grid_constant__ kernels::TensorMap q,
    const __grid_constant__ kernels::TensorMap k,
    const __grid_constant__ kernels::TensorMap v,
    unsigned short* o,
    float* lse,
    int* counter,
    const kernels::Tile* tiles, const kernels::Run* runs, const int* t_d, const long long* t_seed, const long long* t_offset) {
  const Expressions expressions{{}, kernels::aligned(t_d), t_seed, t_offset};
  kernels::ForwardTensors tensors;
  tensors.q = &q;
  tensors.k = &k;
  tensors.v = &v;
  tensors.o = o;
  tensors.lse = lse;
  tensors.counter = counter;
  kernels::forward<Constants>(tensors, expressions, Lists{tiles, runs});
}
