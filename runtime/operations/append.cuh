// New keys and values go to pages, rotated and rounded if asked; queries are rotated beside them.
#pragma once

#include "operations/elements.cuh"

namespace operations {

using attn::operations::AppendParameters;
using attn::operations::AppendPart;

ATTN_INLINE bool has_position(const AppendParameters& all, unsigned row, long long& position) {
  if (!all.positions) return true;
  position = all.wide_positions ? ((const long long*)all.positions)[row]
                                : ((const int*)all.positions)[row];
  return position >= 0 && position < all.table_rows;
}

// Whether the row has a slot, which may be negative: such a row is skipped.
ATTN_INLINE bool has_slot(const AppendParameters& all, unsigned row) {
  return !all.slots || all.slots[row] < (long long)all.slot_count;
}

// Where a row goes; null: nowhere.
ATTN_INLINE unsigned char* target_of(const AppendParameters& all, const AppendPart& part,
                                     unsigned row) {
  unsigned char* const to = (unsigned char*)part.to;
  if (!part.paged) return to + row * part.to_row;
  const long long slot = all.slots[row];
  if (slot < 0 || slot >= (long long)all.slot_count) return nullptr;
  const unsigned page = (unsigned)slot / all.page_size;
  return to + page * part.to_page + ((unsigned)slot - page * all.page_size) * part.to_row;
}

template <int kCount>
ATTN_INLINE void store(const AppendPart& part, void* to, int at, Elements<kCount>& values) {
  if (part.descale) {
    const float descale = *part.descale;
#pragma unroll
    for (int i = 0; i < kCount; ++i) values.x[i] /= descale;
  }
  values.store(to, part.to_type, at);
}

ATTN_INLINE void turn(float& first, float& second, float cos, float sin) {
  const float turned = first * cos - second * sin;
  second = second * cos + first * sin;
  first = turned;
}

// Pairs of elements `pair` .. `pair + kCount`: all are read before any is written, since `to` may
// be `from`.
template <int kCount>
ATTN_INLINE void rotate(const AppendParameters& all, const AppendPart& part, const void* from,
                        void* to, int pair, long long position) {
  Elements<kCount> cos, sin, first, second;
  cos.load((const unsigned char*)all.cos + position * all.cos_row, all.table_type, pair);
  sin.load((const unsigned char*)all.sin + position * all.sin_row, all.table_type, pair);
  const int at = all.interleaved ? 2 * pair : pair;
  const int other = all.interleaved ? at + kCount : all.pairs + pair;
  first.load(from, part.from_type, at);
  second.load(from, part.from_type, other);
  if (all.interleaved) {
    const auto element = [&](int i) -> float& {
      return i < kCount ? first.x[i] : second.x[i - kCount];
    };
#pragma unroll
    for (int i = 0; i < kCount; ++i) turn(element(2 * i), element(2 * i + 1), cos.x[i], sin.x[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) turn(first.x[i], second.x[i], cos.x[i], sin.x[i]);
  }
  store(part, to, at, first);
  store(part, to, other, second);
}

template <int kCount>
ATTN_INLINE void append_rows(const AppendParameters& all, const AppendPart& part, unsigned first,
                             unsigned rows) {
  const unsigned units = (unsigned)part.heads * (unsigned)part.units;
  for (unsigned i = threadIdx.x; i < rows * units; i += attn::operations::kThreads) {
    const unsigned row = first + i / units, head = i % units / (unsigned)part.units;
    const int unit = (int)(i % (unsigned)part.units);
    long long position = 0;
    const bool exists = has_position(all, row, position);
    if (i % units == 0 && &part == all.parts && all.outside && !(exists && has_slot(all, row)))
      atomicAdd(all.outside, 1);
    unsigned char* const row_to = target_of(all, part, row);
    if (!exists || !row_to) continue;
    const unsigned char* const from =
        (const unsigned char*)part.from + row * part.from_row + head * part.from_head;
    unsigned char* const to = row_to + head * part.to_head;
    if (unit < part.rotated_units) {
      rotate<kCount>(all, part, from, to, unit * kCount, position);
      continue;
    }
    const int rotated = part.rotated_units * kCount * 2;
    const int at = rotated + (unit - part.rotated_units) * kCount;
    Elements<kCount> values;
    values.load(from, part.from_type, at);
    store(part, to, at, values);
  }
}

}  // namespace operations

// Grid: as many blocks as the parts need together.
extern "C" __global__ void __launch_bounds__(attn::operations::kThreads)
    attn_append_rows(const __grid_constant__ attn::operations::AppendParameters all) {
  int which = all.count - 1;
  while (which > 0 && all.parts[which].first_block > (int)blockIdx.x) --which;
  const attn::operations::AppendPart& part = all.parts[which];
  const unsigned first =
      (unsigned)((int)blockIdx.x - part.first_block) * (unsigned)part.rows_of_block;
  if (first >= (unsigned)all.rows) return;
  const unsigned left = (unsigned)all.rows - first, most = (unsigned)part.rows_of_block;
  const unsigned rows = left < most ? left : most;
  switch (part.elements) {
    case 8: return operations::append_rows<8>(all, part, first, rows);
    case 4: return operations::append_rows<4>(all, part, first, rows);
    case 2: return operations::append_rows<2>(all, part, first, rows);
    default: return operations::append_rows<1>(all, part, first, rows);
  }
}
