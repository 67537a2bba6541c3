// Which // and % of integers cuDNN's fused kernels compute right. They multiply by an approximate
// inverse and truncate: powers of two divide exactly, but 300 // 300 is 0 (docs/cudnn.md).
#pragma once

#include "compiler/ir/attention.h"

namespace attn::passes {

// Whether the left side may be negative, or the right side less than 1: truncation is no floor
// then.
bool may_round_up(const ir::Attention& attention, const ir::Node& division);

// A constant power of two on the right side.
bool is_by_power_of_two(const ir::Dag& dag, const ir::Node& division);

// Whether the kernel can compute it exactly, by a power of two as it stands, by others as
// (2 x + 1) // (2 y): that lies at least 1 / (2 y) away from an integer, while both sides are below
// kWholeInReals (reals.h).
bool is_exact_in_kernel(const ir::Attention& attention, const ir::Node& division);

}  // namespace attn::passes
