// Looks at what a binding's control tensors hold: lengths, rows of packed sequences, page tables.
#pragma once

#include "operations/elements.cuh"

namespace operations {

using attn::operations::ControlParameters;
using attn::operations::ControlPart;

// The sequences that are used.
ATTN_INLINE int sequences_of(const ControlParameters& all) {
  if (!all.options) return all.sequences;
  const int* const at = *(const int* const*)all.options;
  const int given = ((const int*)all.options)[2];
  const int count = at ? *at : given ? given - 1 : all.sequences;
  return count < 0 ? 0 : count < all.sequences ? count : all.sequences;
}

// Keeps the first fault: the one with the smallest number, which is stored inverted.
ATTN_INLINE void report(const ControlParameters& all, int part, int kind, long long index) {
  const unsigned long long fault =
      (unsigned long long)(part * attn::operations::kControlKinds + kind)
      << attn::operations::kControlIndexBits;
  atomicMax(all.found, ~(fault | (unsigned long long)index));
}

// The rows of a sequence, or -1 if they are none that it can have.
ATTN_INLINE long long length_of(const ControlPart& part, int sequence, bool& falls) {
  falls = false;
  if (!part.lengths) return part.most;
  if (!part.cumulative) {
    const int length = part.lengths[sequence];
    return length < 0 || length > part.most ? -1 : length;
  }
  const long long begin = part.lengths[sequence], end = part.lengths[sequence + 1];
  falls = begin < 0 || end < begin;
  return falls || end - begin > part.most ? -1 : end - begin;
}

}  // namespace operations

// Grid: `blocks` blocks, each of which looks at every `blocks`-th sequence.
extern "C" __global__ void __launch_bounds__(attn::operations::kThreads)
    attn_check_control(const __grid_constant__ attn::operations::ControlParameters all) {
  const int sequences = operations::sequences_of(all);
  for (int sequence = (int)blockIdx.x; sequence < sequences; sequence += all.blocks) {
    for (int i = 0; i < all.count; ++i) {
      const attn::operations::ControlPart& part = all.parts[i];
      bool falls = false;
      const long long length = operations::length_of(part, sequence, falls);
      if (length < 0) {
        const int kind = falls ? attn::operations::kFalls : attn::operations::kTooLong;
        if (threadIdx.x == 0) operations::report(all, i, kind, sequence);
        continue;
      }
      if (!part.table) continue;
      const long long used = (length + part.page_size - 1) / part.page_size;
      for (long long column = threadIdx.x; column < used; column += attn::operations::kThreads) {
        const int page = part.table[sequence * part.table_row + column];
        if (page >= 0 && page < part.pages) continue;
        operations::report(all, i, attn::operations::kOutside, sequence * part.columns + column);
      }
    }
  }
}
