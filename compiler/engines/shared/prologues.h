// Programs of attentions with prologues of q and k (ir::Prologue), by any strategy: it computes the
// attention of what they make, and kernels before and after it make that and their gradients.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Errors: unsupported, for rows that are packed (thd), in pages, or parts of one tensor with v,
// with bound strides, or longer than shared memory holds, and if an index in a prologue may be out
// of range.
Status check_prologues(const ir::Attention& attention, bool backward);

// The program of the attention, which check_prologues takes: `program` is one of
// ir::with_prologues_given(attention).
plan::Program with_prologues(const ir::Attention& attention, plan::Program program);

}  // namespace attn::engines
