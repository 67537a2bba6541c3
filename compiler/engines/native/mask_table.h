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

// Replaces the expensive terms of masks that read tensors by one mask that reads a table. The table
// is a derived tensor of conditions over the axes that these terms depend on; the other terms stay.
// nullopt if these terms take less than kWorthTable operations together or do not depend on both
// row and column, or if the table would take too much memory. Dimensions must be bound.
std::optional<rewrite::Hoisted> with_mask_table(const ir::Attention& attention);

}  // namespace attn::engines
