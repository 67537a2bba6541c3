// Masks that take many operations on each score and read tensors, such as `any(t in 0..128:
// chosen[b, q_idx, t] == kv_idx)`, as a tensor that is derived before the kernel runs.
#pragma once

#include <optional>

#include "compiler/ir/attention.h"
#include "compiler/rewrite/hoist.h"

namespace attn::engines {

// Operations on each score that are worth a table, which all heads that see the same read.
inline constexpr double kWorthTable = 64;
inline constexpr double kMostTableBytes = 0x1p30;

// The attention with a mask that reads a tensor of conditions over the axes of the terms of its
// masks that take so many operations together; the other terms stay. nullopt if there are none, or
// the table would take too much memory. Dimensions must be bound.
std::optional<rewrite::Hoisted> with_mask_table(const ir::Attention& attention);

}  // namespace attn::engines
