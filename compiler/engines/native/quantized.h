// What the forward kernel needs besides, of 8-bit floats: values with adjacent keys, which a kernel
// of the same step makes before (attn/transposed_values.cuh), and zeros as the first largest
// magnitudes.
//
//   native.values   the values, [B, Hkv, Dv, Skv rounded up to 16]
//
// It also copies q and k where TMA cannot read them (padded_rows.h).
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

// The bytes that it moves.
double bytes_of_transposing(const ir::Attention& attention);

}  // namespace attn::engines::native
