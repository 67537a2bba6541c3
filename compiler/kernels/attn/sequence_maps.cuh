// Tensor maps of the sequences of a packed tensor (thd), one for each batch. The GPU makes them before
// the kernel that copies through them (forward.cuh), because only it knows where sequences begin and
// end. Past the end of its sequence a map reads zeros.
#pragma once

#include "attn/hopper.cuh"

namespace kernels {

// The maps are read by another proxy of memory than that which writes them. Source: PTX ISA,
// "tensormap.replace" and "membar / fence".
ATTN_INLINE void publish_maps() {
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
}

// `whole` with dimension kRowDim and the address those of one sequence: `count` rows from `rows` on.
// A dimension has an element at least: a sequence without rows is the first row of the tensor, which
// lengths hide.
template <int kRowDim>
ATTN_INLINE void map_sequence(const TensorMap& whole, const unsigned short* rows, int count,
                              TensorMap* map) {
#pragma unroll
  for (int i = 0; i < 16; ++i) map->words[i] = whole.words[i];
  if (count > 0) {
    asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(map),
                 "l"(rows)
                 : "memory");
  }
  asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], %1, %2;" ::"l"(map),
               "n"(kRowDim), "r"(count > 0 ? count : 1)
               : "memory");
}

}  // namespace kernels
