#include "attn/key_lists.cuh"
struct Lists {
  const kernels::Tile* tiles;
  const kernels::Run* runs;
  __device__ kernels::Tile tile(int i) const { return tiles[i]; }
  __device__ kernels::Run run(int i) const { return runs[i]; }
};
struct Constants : kernels::ForwardDefaults {
  using Float = kernels::F16;
  using Output = kernels::F16;
  static constexpr int kGroups = 2;
  static constexpr int kKeys = 128;
  static constexpr int kDepth = 64;
  static constexpr int kWidth = 64;
  static constexpr int kStored = 64;
  static constexpr int kDepthPanel = 64;
  static constexpr int kWidthPanel = 64;
  static constexpr int kShares = 1;
  static constexpr int kShare = 64;
  static constexpr int kStages = 2;
  static constexpr int kQueries = 2;
  static constexpr int kPack = 1;
  static constexpr int kRowsOfTile = 128;
  static constexpr int kBatches = 1;
  static constexpr int kUnits = 2;
  static constexpr int kHeadsOfKey = 1;
  static constexpr int kRows = 100;
  static constexpr int kColumns = 200;
  static constexpr int kTiles = 1;
  static constexpr int kSplits = 1;
  static constexpr int kItems = 2;
  static constexpr int kSection = 32;
  static constexpr int kLists = 1;
  static constexpr int kCellKeys = 16;
  static constexpr int kCells = 13;
  static constexpr int kMostRuns = 2;
  static constexpr int kTilesOfBlock = 1;
  static constexpr int kListsDone = 1;
  static constexpr bool kTurns = true;
  static constexpr bool kOverlaps = true;
  static constexpr bool kReadOnce = true;
  static constexpr bool kAligned = true;
  static constexpr long long kOutputBatch = 12800;
  static constexpr long long kOutputHead = 64;
  static constexpr long long kOutputRow = 128;
  static constexpr long long kOutputColumn = 1;
  static constexpr long long kStatisticsBatch = 200;
  static constexpr long long kStatisticsHead = 100;
  static constexpr long long kStatisticsRow = 1;
};
struct Expressions : kernels::Reals {
  static constexpr bool kScore = true, kBounded = false, kMask = true, kKeep = false, kSink = true;
  static constexpr bool kReadsColumns = false, kRandom = false, kSigmoid = false;
  static constexpr bool kMasksByIndices = false;
  static constexpr int kColumnPeriod = 16, kPolynomials = 0;
  static constexpr float kKeptScale = 1;
  const float* t_t;
  const int* t_d;
  const float* t_s;
  float p_c;
  __device__ float weight() const {
    return 1.0f;
  }
  struct Lines {
    float shift, slope;
    float at[2];
  };
  __device__ Lines lines(int b, int h, int row, int column) const {
    const float v1 = (float)t_t[h];
    const int v4 = attn_wrap((long long)column - row);
    const float v5 = (float)v4;
    const float v6 = v1 * v5;
    const int v9 = attn_wrap((long long)1 - 0);
    const float v10 = (float)v9;
    const float v11 = v1 * v10;
    return Lines{0.0f, 0.0f, {v6, v11}};
  }
  __device__ float score(int b, int h, int row, int column, float offset, const Lines& lines,
                         float entry, float product) const {
    const float score = product * 0.125f;
    const float v3 = (float)p_c;
    const float v4 = score + fmaf(lines.at[1], offset, lines.at[0]);
    const float v5 = tanh(v4);
    const float v6 = v3 * v5;
    return v6;
  }
  __device__ bool mask(int b, int h, int row, int column) const {
    const int v2 = (int)t_d[row];
    const int v4 = (int)((unsigned)column / 3u);
    const bool v5 = v2 <= v4;
    return v5;
  }
  __device__ float sink(int h) const {
    const float v1 = (float)t_s[h];
    return v1;
  }
  __device__ int keys(int b) const { return 200; }
  __device__ int queries(int b) const { return 100; }
  __device__ int used_keys(int b) const { return keys(b); }
  __device__ int used_queries(int b) const { return queries(b); }
  static constexpr bool kIntervals = true;
  static constexpr int kRowValues = 1, kColumnValues = 1;
  __device__ void row_values(int b, int h, int row, int* values) const {
    const int v1 = (int)t_d[row];
    values[0] = v1;
  }
  __device__ void column_values(int b, int h, int column, int* values) const {
    const int v2 = (int)((unsigned)column / 3u);
    values[0] = v2;
  }
  __device__ kernels::Interval visible(int b, int h, const kernels::Interval* rows,
      const kernels::Interval* columns) const {
    const kernels::Interval i0 = kernels::less_equal(rows[0], columns[0]);
    return i0;
  }
};
extern "C" __global__ void __launch_bounds__(512, 1) attn_lists(
    kernels::Tile* tiles, kernels::Tile* sorted, kernels::Run* runs,
    int* counter, const float* t_t, const int* t_d, const float* t_s, float p_c) {
  const Expressions expressions{{}, kernels::aligned(t_t), kernels::aligned(t_d), kernels::aligned(t_s), p_c};
  kernels::list_keys<Constants>(
      expressions, {tiles, sorted, runs, counter + Constants::kListsDone});
}
static_assert(kernels::Stages<Constants>::kBytes + 1024 == 99456, "");
extern "C" __global__ void __launch_bounds__(384, 1) attn_forward(
    const __grid_constant__ kernels::TensorMap q,
    const __grid_constant__ kernels::TensorMap k,
    const __grid_constant__ kernels::TensorMap v,
    unsigned short* o,
    float* lse,
    float* max,
    float* sum_exp,
    int* counter,
    const kernels::Tile* tiles, const kernels::Run* runs, const float* t_t, const int* t_d, const float* t_s, float p_c) {
  const Expressions expressions{{}, kernels::aligned(t_t), kernels::aligned(t_d), kernels::aligned(t_s), p_c};
  kernels::ForwardTensors tensors;
  tensors.q = &q;
  tensors.k = &k;
  tensors.v = &v;
  tensors.o = o;
  tensors.lse = lse;
  tensors.max = max;
  tensors.sum_exp = sum_exp;
  tensors.counter = counter;
  kernels::forward<Constants>(tensors, expressions, Lists{tiles, runs});
}
