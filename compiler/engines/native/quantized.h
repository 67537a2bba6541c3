// What the forward kernel needs besides, of 8-bit floats: values with adjacent keys, which a kernel
// of the same step makes before (attn/transposed_values.cuh), and zeros as the first largest
// magnitudes.
//
//   native.values   the values, [B, Hkv, Dv, Skv rounded up to 16]
//
// It also copies q and k where TMA cannot read them (padded_rows.h).
//
// Kernels of warps take none of these copies: threads that copy widen rows to f16, which holds
// every element exactly, and weights have 16 bits (attn/mma_rows.cuh). There a kernel before zeroes
// the largest magnitudes, if some are outputs.
#pragma once

#include <string>
#include <vector>

#include "compiler/engines/native/tiles.h"
#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines::native {

// Errors: unsupported, for scales of blocks, and for rows with bound strides that nothing can read.
Status check_quantized(const ir::Attention& attention);

// Whether a kernel before copies rows of an 8-bit attention for kernels with such a tile.
inline bool is_copied_before(const ir::Attention& attention, const Tile& tile) {
  return attention.quantize && !tile.of_warps;
}

// The map by which the kernel reads the values.
plan::TensorMapArgument map_of_values(const ir::Attention& attention, const Tile& tile);

// The kernel that makes them. It has the parameters of expressions, for lengths, and `object`
// declares these.
std::string transposed_values_text(const ir::Attention& attention, const std::string& parameters,
                                   const std::string& object);

// Adds its launch to the step. `inputs`: the expressions'.
void add_transposed_values(const ir::Attention& attention,
                           const std::vector<plan::KernelArgument>& inputs, plan::Program& program,
                           plan::KernelStep& step);

// The kernel of one thread that zeroes the largest magnitudes which are outputs; empty without any.
// And its launch.
std::string zeroed_magnitudes_text(const ir::Attention& attention);
void add_zeroed_magnitudes(const ir::Attention& attention, plan::KernelStep& step);

// The bytes that the kernel of values moves.
double bytes_of_transposing(const ir::Attention& attention);

}  // namespace attn::engines::native
