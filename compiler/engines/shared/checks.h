// Checks that every lowering makes on an attention and on the program it produces.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Refuses 8-bit floats, which kernels that attnc generates neither read nor write. `whose` begins
// the message.
Status check_not_8_bits(const ir::Attention& attention, std::string_view whose);

// Errors: unsupported, for the backward of an 8-bit attention without scales of gradients.
Status check_scales_of_gradients(const ir::Attention& attention);

// Errors: unsupported if strides or offsets would overflow 64 bits. Requires bound dimensions.
Status check_sizes(const ir::Attention& attention);

// The same for its tensors, but not for scores.
Status check_tensors(const ir::Attention& attention);

// Errors: invalid_argument for an open dimension; those of check_sizes; unsupported for a sink that
// varies with the batch.
Status check_attention(const ir::Attention& attention);

// The same for a forward, whose outputs must include o (interface.h).
Status check_forward(const ir::Attention& attention);

// Errors: unsupported if elements of a gradient of q, k or v would overlap: for paged tensors and
// overlapping strides. Requires bound dimensions.
Status check_gradients(const ir::Attention& attention);

// Refuses gradients of learned tensors, for a backward in several kernels that each see some of the
// scores.
Status check_no_learned(const ir::Attention& attention);

// Errors: unsupported for tensors that are too large to address. An invalid program is a bug
// (ATTN_CHECK).
Status check_program(const ir::Attention& attention, const plan::Program& program);

}  // namespace attn::engines
