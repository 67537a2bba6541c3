// The backward as attnc's own kernels, for compute capability 9.0 (attn/backward.cuh) and for other
// GPUs from 8.0 on (attn/mma_backward.cuh): text generated from the IR and its derivative, with the
// lists of row blocks that masks show.
//
//   native.counter    i32: the number of items that were taken, then one for each list that the GPU
//                     makes (row_lists.h), and the parts into which it divides blocks of keys
//                     (attn/division.cuh), zeroed before each run
//   native.exponents  f32 [B, Hq, rows]: -lse log2(e), -inf in empty rows; some rows more than Sq
//   native.deltas     f32, the same: delta
//   native.sums       f32: sums of dq, zeroed before each run (QuerySums::add_queries)
//   native.key_sums   f32: sums of dk and dv of parts of blocks of keys
//                     (BackwardTensors::key_sums)
//   native.turns      i32 [B, Hq, blocks of rows]: of sums in a fixed order, the block of keys that
//                     adds next (QueryAdder), zeroed before each run
//   native.parts      f32: parts of gradients of learned tensors (BackwardTensors::parts), zeroed
//                     before each run
#pragma once

#include "compiler/engines/native/programs.h"
#include "compiler/ir/attention.h"

namespace attn::engines::native {

// Errors: unsupported, for what the kernels, of warps or of warp groups, do not compute yet.
Status check_backward(const ir::Attention& attention, bool of_warps);

// A kernel step. `refused`: how many of the best tiles not to take. The attention must have passed
// check_native. Errors: unsupported for lists that are too long, and when no tile is left.
Result<NativeProgram> lower_backward(const ir::Attention& attention, const masks::Axes& mask_axes,
                                     const target::Context& context, std::size_t refused);

// The same by kernels of one launch (attn/mma_short_backward.cuh), and how many tiles of these
// there are: none if a head has too many keys.
Result<NativeProgram> lower_short_backward(const ir::Attention& attention,
                                           const masks::Axes& mask_axes,
                                           const target::Context& context, std::size_t refused);
std::size_t count_of_short_tiles(const ir::Attention& attention, const target::Context& context);

}  // namespace attn::engines::native
