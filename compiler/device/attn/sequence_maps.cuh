// Tensor maps of the sequences of a packed tensor (thd), one for each batch. The GPU makes them
// before the kernel that copies through them (forward.cuh), because only it knows where sequences
// begin and end. Past the end of its sequence a map reads zeros.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// `whole` with dimension kRowDim and the address those of one sequence: `count` rows from `rows`
// on. A dimension has an element at least: that of a sequence without rows is never read.
template <int kRowDim>
ATTN_INLINE void map_sequence(const TensorMap& whole, const void* rows, int count, TensorMap* map) {
#pragma unroll
  for (int i = 0; i < 16; ++i) map->words[i] = whole.words[i];
  if (count > 0) set_address(map, rows);
  set_dimension<kRowDim>(map, count > 0 ? count : 1);
}

}  // namespace kernels
