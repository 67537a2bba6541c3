// Kernels that pack, gather and merge rows for an attention on several GPUs. They know no sizes:
// one image serves every file of `compile --ranks`. Parameters: runtime/ranks/ranks_parameters.h,
// which is embedded beside this file.
#pragma once

#include "attn/hopper.cuh"
#include "attn/ranks_parameters.h"

namespace kernels {

using attn::ranks::RanksCopies;
using attn::ranks::RanksCopy;
using attn::ranks::RanksEntry;
using attn::ranks::RanksMerge;
using attn::ranks::RanksPlace;
using attn::ranks::RanksTensor;

// ---- Copies ----

struct RanksUnit {
  const unsigned char* from;
  unsigned char* to;
};

// The place of unit i of the lines from `line` on. Divisions are what copying costs besides memory:
// most copies have one head (or adjacent ones) and one batch.
ATTN_INLINE RanksUnit ranks_unit(const RanksCopy& copy, unsigned line, unsigned i) {
  const unsigned units = (unsigned)copy.heads * (unsigned)copy.vectors;
  unsigned head = 0, vector = i % units, batch = 0, row = line + i / units;
  if (copy.heads > 1) {
    head = vector / (unsigned)copy.vectors;
    vector %= (unsigned)copy.vectors;
  }
  if (copy.lines > copy.rows) {
    batch = row / (unsigned)copy.rows;
    row %= (unsigned)copy.rows;
  }
  const int from_row = copy.pairs ? copy.pairs[2 * row] : (int)row;
  const int to_row = copy.pairs ? copy.pairs[2 * row + 1] : (int)row;
  const long long inside = (long long)vector * copy.vector_bytes;
  return {(const unsigned char*)copy.from + batch * copy.from_batch + from_row * copy.from_row +
              head * copy.from_head + inside,
          (unsigned char*)copy.to + batch * copy.to_batch + to_row * copy.to_row +
              head * copy.to_head + inside};
}

// Several reads are under way at once.
template <typename Vector>
ATTN_INLINE void copy_lines(const RanksCopy& copy, unsigned first, unsigned count) {
  constexpr unsigned kAtOnce = 4, kThreads = attn::ranks::kRanksThreads;
  const unsigned units = count * (unsigned)copy.heads * (unsigned)copy.vectors;
  for (unsigned begin = threadIdx.x; begin < units; begin += kAtOnce * kThreads) {
    Vector read[kAtOnce];
    Vector* to[kAtOnce];
#pragma unroll
    for (unsigned j = 0; j < kAtOnce; ++j) {
      const unsigned i = begin + j * kThreads;
      if (i >= units) continue;
      const RanksUnit unit = ranks_unit(copy, first, i);
      read[j] = *(const Vector*)unit.from;
      to[j] = (Vector*)unit.to;
    }
#pragma unroll
    for (unsigned j = 0; j < kAtOnce; ++j) {
      if (begin + j * kThreads < units) *to[j] = read[j];
    }
  }
}

// ---- Merging ----

// Elements in f32, `kCount` of them; aligned to their size, up to 16 bytes.
template <int kCount>
struct RanksValues {
  float x[kCount];

  __device__ __forceinline__ void add(const void* data, int type, long long at, float weight) {
    if (type == attn::ranks::kRanksF32) {
      add_f32((const float*)data + at, weight);
    } else if (type == attn::ranks::kRanksBF16) {
      add_16<BF16>((const unsigned short*)data + at, weight);
    } else {
      add_16<F16>((const unsigned short*)data + at, weight);
    }
  }

  __device__ __forceinline__ void store(void* data, int type, long long at) const {
    if (type == attn::ranks::kRanksF32) {
      store_f32((float*)data + at);
    } else if (type == attn::ranks::kRanksBF16) {
      store_16<BF16>((unsigned short*)data + at);
    } else {
      store_16<F16>((unsigned short*)data + at);
    }
  }

 private:
  static constexpr int kFloats = kCount < 4 ? kCount : 4;
  struct alignas(4 * kFloats) Floats {
    float x[kFloats];
  };
  struct alignas(2 * kCount) Halves {
    unsigned short x[kCount];
  };

  __device__ __forceinline__ void add_f32(const float* data, float weight) {
#pragma unroll
    for (int i = 0; i < kCount; i += kFloats) {
      const Floats read = *(const Floats*)(data + i);
#pragma unroll
      for (int j = 0; j < kFloats; ++j) x[i + j] = fmaf(weight, read.x[j], x[i + j]);
    }
  }
  template <typename Type>
  __device__ __forceinline__ void add_16(const unsigned short* data, float weight) {
    const Halves read = *(const Halves*)data;
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = fmaf(weight, Type::widen(read.x[i]), x[i]);
  }
  __device__ __forceinline__ void store_f32(float* data) const {
#pragma unroll
    for (int i = 0; i < kCount; i += kFloats) {
      Floats made;
#pragma unroll
      for (int j = 0; j < kFloats; ++j) made.x[j] = x[i + j];
      *(Floats*)(data + i) = made;
    }
  }
  template <typename Type>
  __device__ __forceinline__ void store_16(unsigned short* data) const {
    Halves made;
#pragma unroll
    for (int i = 0; i < kCount; ++i) made.x[i] = Type::narrow(x[i]);
    *(Halves*)data = made;
  }
};

ATTN_INLINE long long ranks_offset(const RanksTensor& tensor, int batch, int row, int head) {
  return batch * tensor.batch + row * tensor.row + head * tensor.head;
}

ATTN_INLINE bool is_nothing(float x) { return x == nothing(); }

// A row of one head that a few adjacent threads merge. Each of them computes the sums of the
// statistics.
struct RanksRow {
  const RanksMerge& merge;
  int batch, item, head;
  const RanksEntry* begin;  // contributions
  const RanksEntry* end;

  __device__ __forceinline__ const RanksPlace& place(const RanksEntry& entry) const {
    return entry.place < 2 ? merge.home : merge.places[entry.place - 2];
  }
  __device__ __forceinline__ int row_of(const RanksEntry& entry) const {
    return merge.uniform ? entry.row + item : entry.row;
  }
  __device__ __forceinline__ bool has(const RanksPlace& place) const {
    return head >= place.first_head && head < place.first_head + place.heads;
  }
  __device__ __forceinline__ long long at(const RanksTensor& tensor, const RanksPlace& place,
                                          const RanksEntry& entry) const {
    return ranks_offset(tensor, batch, row_of(entry), head - place.first_head);
  }
  __device__ __forceinline__ float read(const RanksTensor& tensor, const RanksPlace& place,
                                        const RanksEntry& entry) const {
    return ((const float*)tensor.data)[at(tensor, place, entry)];
  }

  // The largest, NaN if one is.
  __device__ __forceinline__ float largest(RanksTensor RanksPlace::*which) const {
    float most = nothing();
#pragma unroll 1
    for (const RanksEntry* entry = begin; entry < end; ++entry) {
      const RanksPlace& from = place(*entry);
      if (!has(from) || !(from.*which).data) continue;
      const float x = read(from.*which, from, *entry);
      if (x > most || x != x) most = x;
    }
    return most;
  }

  // Adds what parts have, as logarithms: lse or lse_without_sink.
  __device__ __forceinline__ float log_sum(RanksTensor RanksPlace::*which) const {
    const float most = largest(which);
    if (is_nothing(most)) return most;
    float sum = 0;
#pragma unroll 1
    for (const RanksEntry* entry = begin; entry < end; ++entry) {
      const RanksPlace& from = place(*entry);
      if (!has(from) || !(from.*which).data) continue;
      const float lse = read(from.*which, from, *entry);
      if (!is_nothing(lse)) sum += lse == most ? 1 : expf(lse - most);
    }
    return most + logf(sum);
  }

  // The sum of exponentials, relative to `most`.
  __device__ __forceinline__ float sum_exp(RanksTensor RanksPlace::*max,
                                           RanksTensor RanksPlace::*which, float most) const {
    float sum = 0;
#pragma unroll 1
    for (const RanksEntry* entry = begin; entry < end; ++entry) {
      const RanksPlace& from = place(*entry);
      if (!has(from) || !(from.*which).data) continue;
      const float of_part = read(from.*max, from, *entry);
      const float weight = of_part == most ? 1 : expf(of_part - most);
      if (!is_nothing(of_part)) sum += weight * read(from.*which, from, *entry);
    }
    return sum;
  }

  __device__ __forceinline__ void write(const RanksTensor& tensor, const RanksPlace& to,
                                        const RanksEntry& entry, float x) const {
    if (tensor.data) ((float*)tensor.data)[at(tensor, to, entry)] = x;
  }
  __device__ __forceinline__ void write_sums(const RanksPlace& to, const RanksEntry& entry,
                                             RanksTensor RanksPlace::*max,
                                             RanksTensor RanksPlace::*sum) const {
    if (!(to.*max).data && !(to.*sum).data) return;
    const float most = largest(max);
    const float total = (to.*sum).data ? sum_exp(max, sum, most) : 0;
    write(to.*max, to, entry, most);
    write(to.*sum, to, entry, total);
  }
  __device__ __forceinline__ void write_statistics(const RanksPlace& to, const RanksEntry& entry,
                                                   float lse) const {
    write_sums(to, entry, &RanksPlace::max, &RanksPlace::sum_exp);
    write_sums(to, entry, &RanksPlace::max_with_sink, &RanksPlace::sum_exp_with_sink);
    write(to.lse, to, entry, lse);
    if (to.lse_without_sink.data)
      write(to.lse_without_sink, to, entry, log_sum(&RanksPlace::lse_without_sink));
  }

  template <int kCount>
  __device__ __forceinline__ void write_values(const RanksPlace& to, const RanksEntry& entry,
                                               float lse, int lane) const {
    const long long written = at(to.values, to, entry);
    for (int i = lane * kCount; i < merge.width; i += merge.threads * kCount) {
      RanksValues<kCount> sum = {};
#pragma unroll 1
      for (const RanksEntry* each = begin; each < end; ++each) {
        const RanksPlace& from = place(*each);
        if (!has(from) || !from.values.data) continue;
        float weight = 1;
        if (merge.weighted) {
          const float of_part = read(from.lse, from, *each);
          if (is_nothing(of_part)) continue;
          weight = of_part == lse ? 1 : expf(of_part - lse);
        }
        sum.add(from.values.data, from.type, at(from.values, from, *each) + i, weight);
      }
      sum.store(to.values.data, to.type, written + i);
    }
  }
};

template <int kCount>
ATTN_INLINE void merge_row(const RanksRow& row, const RanksEntry& to, int lane) {
  const RanksPlace& place = row.place(to);
  const float lse = row.merge.weighted ? row.log_sum(&RanksPlace::lse) : 0;
  if (place.values.data && to.place != 1) row.write_values<kCount>(place, to, lse, lane);
  if (row.merge.weighted && lane == 0) row.write_statistics(place, to, lse);
}

}  // namespace kernels

// Grid: as many blocks as the copies need together.
extern "C" __global__ void __launch_bounds__(attn::ranks::kRanksThreads)
    attn_ranks_copy(const __grid_constant__ kernels::RanksCopies all) {
  int which = all.count - 1;
  while (which > 0 && all.copies[which].first_block > (int)blockIdx.x) --which;
  const kernels::RanksCopy& copy = all.copies[which];
  const unsigned first =
      (unsigned)((int)blockIdx.x - copy.first_block) * (unsigned)copy.lines_of_block;
  if (first >= (unsigned)copy.lines) return;
  const unsigned left = (unsigned)copy.lines - first;
  const unsigned most = (unsigned)copy.lines_of_block, count = left < most ? left : most;
  switch (copy.vector_bytes) {
    case 16: return kernels::copy_lines<uint4>(copy, first, count);
    case 8: return kernels::copy_lines<uint2>(copy, first, count);
    case 4: return kernels::copy_lines<unsigned>(copy, first, count);
    case 2: return kernels::copy_lines<unsigned short>(copy, first, count);
    default: return kernels::copy_lines<unsigned char>(copy, first, count);
  }
}

// Grid: a thread for each of batches * rows * heads * threads.
extern "C" __global__ void __launch_bounds__(attn::ranks::kRanksThreads)
    attn_ranks_merge(const __grid_constant__ kernels::RanksMerge merge) {
  const long long thread = attn_thread();
  const long long rows = merge.batches * merge.rows * merge.heads;
  const long long own = thread / merge.threads;
  if (own >= rows) return;
  const unsigned index = (unsigned)own;
  const int lane = (int)(thread % merge.threads);
  const int head = merge.first_head + (int)(index % (unsigned)merge.heads);
  const unsigned line = index / (unsigned)merge.heads;
  const int item = (int)(line % (unsigned)merge.rows), batch = (int)(line / (unsigned)merge.rows);
  const int from = merge.uniform ? 0 : item;
  const kernels::RanksEntry* const entries = merge.entries + merge.first[from];
  const kernels::RanksEntry* end = merge.entries + merge.first[from + 1];
  if (merge.lengths && merge.numbers[item] >= merge.lengths[batch]) end = entries + 1;
  const kernels::RanksRow row = {merge, batch, item, head, entries + 1, end};
  switch (merge.vector) {
    case 8: return kernels::merge_row<8>(row, *entries, lane);
    case 4: return kernels::merge_row<4>(row, *entries, lane);
    case 2: return kernels::merge_row<2>(row, *entries, lane);
    default: return kernels::merge_row<1>(row, *entries, lane);
  }
}

// Adds 1 to a counter in mapped host memory, which one thread of one stream at a time writes.
extern "C" __global__ void attn_ranks_mark(unsigned* counter) {
  volatile unsigned* const count = counter;
  *count = *count + 1;
  __threadfence_system();
}
