// Results of attentions over parts of the keys become the result over all of them:
// lse = log(sum of exp(lse_i)), o = sum of o_i exp(lse_i - lse).
#pragma once

#include "operations/elements.cuh"

namespace operations {

using attn::operations::MergeParameters;
using attn::operations::MergeSource;

ATTN_INLINE float infinity() { return __uint_as_float(0x7f800000u); }

// A row of one head, which a few adjacent threads merge. Each of them computes its sum.
struct MergedRow {
  const MergeParameters& all;
  long long row;
  int head;
  float most = -infinity(), sum = 0;  // of the lse; of exp(lse - most)

  // Some libraries write +inf for a row without keys.
  __device__ __forceinline__ float lse_of(const MergeSource& source, int result) const {
    const float lse =
        source.lse[result * source.lse_result + row * source.lse_row + head * source.lse_head];
    return lse == infinity() ? -lse : lse;
  }

  // Calls visit(source, result, lse) for results with keys.
  template <typename Visit>
  __device__ __forceinline__ void each(const Visit& visit) const {
    for (const MergeSource& source : all.sources) {
#pragma unroll 1
      for (int result = 0; result < source.count; ++result) {
        const float lse = lse_of(source, result);
        if (lse != -infinity()) visit(source, result, lse);
      }
    }
  }

  // The largest is NaN if one is.
  __device__ __forceinline__ void add_up() {
    each([&](const MergeSource&, int, float lse) {
      if (lse > most || lse != lse) most = lse;
    });
    each([&](const MergeSource&, int, float lse) { sum += expf(lse - most); });
  }

  template <int kCount>
  __device__ __forceinline__ void write(int lane) const {
    for (int at = lane * kCount; at < all.width; at += all.threads * kCount) {
      Elements<kCount> total = {};
      each([&](const MergeSource& source, int result, float lse) {
        const float weight = expf(lse - most) / sum;
        Elements<kCount> values;
        const long long place =
            result * source.o_result + row * source.o_row + head * source.o_head;
        values.load(source.o, source.type, place + at);
#pragma unroll
        for (int i = 0; i < kCount; ++i) total.x[i] = fmaf(weight, values.x[i], total.x[i]);
      });
      total.store(all.out, all.type, row * all.out_row + head * all.out_head + at);
    }
  }
};

}  // namespace operations

// Grid: a thread for each of rows * heads * threads.
extern "C" __global__ void __launch_bounds__(attn::operations::kThreads)
    attn_merge_results(const __grid_constant__ attn::operations::MergeParameters all) {
  const unsigned threads = (unsigned)all.threads, heads = (unsigned)all.heads;
  const unsigned own = blockIdx.x * (attn::operations::kThreads / threads) + threadIdx.x / threads;
  const int lane = (int)(threadIdx.x % threads);
  const bool exists = own < (unsigned)all.rows * heads;  // fewer than 2^31
  operations::MergedRow row = {all, own / heads, (int)(own % heads)};
  if (exists) {
    row.add_up();
    switch (all.elements) {
      case 8: row.write<8>(lane); break;
      case 4: row.write<4>(lane); break;
      case 2: row.write<2>(lane); break;
      default: row.write<1>(lane); break;
    }
  }
  __syncwarp();  // all lanes have read the lse that may be written in place
  if (exists && lane == 0 && all.lse)
    all.lse[row.row * all.lse_row + row.head * all.lse_head] = row.most + logf(row.sum);
}
