// Which // and % of integers cuDNN's fused kernels compute correctly. They multiply by an
// approximate inverse and truncate: powers of two divide exactly, but 300 // 300 is 0
// (docs/cudnn.md).
#pragma once

#include "compiler/ir/attention.h"

namespace attn::rewrite {

// Whether the dividend may be negative or the divisor less than 1: truncation differs from floor
// then.
bool may_round_up(const ir::Attention& attention, const ir::Node& division);

// Whether the divisor is a constant power of two.
bool is_by_power_of_two(const ir::Dag& dag, const ir::Node& division);

// Whether the kernel can compute it exactly: by a power of two directly; otherwise, if both sides
// are below kWholeInReals (reals.h), as (2 x + 1) // (2 y), which is at least 1 / (2 y) from an
// integer.
bool is_exact_in_kernel(const ir::Attention& attention, const ir::Node& division);

}  // namespace attn::rewrite
