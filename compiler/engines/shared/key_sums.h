// Programs of attentions with sums along keys (ir::KeySum), by any strategy: it computes the
// attention that captures the sums, and kernels before and after it compute them and their
// gradients.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Errors: unsupported, if an index in what is summed may be out of range.
Status check_key_sums(const ir::Attention& attention);

// The program of the attention, which check_key_sums takes: `program` is one of
// ir::with_sums_given(attention). Errors: unsupported, if what is checked at binding reads sums.
Result<plan::Program> with_key_sums(const ir::Attention& attention, plan::Program program);

}  // namespace attn::engines
