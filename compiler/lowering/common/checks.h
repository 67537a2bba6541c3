// What every lowering asks of an attention and of the program that it made.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// Errors: invalid_argument for an open dimension; unsupported where sizes leave 64 bits, and for a
// sink that varies with the batch.
Status check_attention(const ir::Attention& attention);

// The same, of a forward, which must have o among its outputs (internal_o.h).
Status check_forward(const ir::Attention& attention);

// Errors: unsupported where q, k or v has a gradient whose elements would share places: paged
// tensors, and strides by which elements overlap. Requires bound dimensions.
Status check_gradients(const ir::Attention& attention);

// Errors: unsupported for tensors that cannot be addressed. A program that is not valid is a fault
// of ours (ATTN_CHECK).
Status check_program(const ir::Attention& attention, const plan::Program& program);

}  // namespace attn::lowering
