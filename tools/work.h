// How much work an attention is, whatever computes it.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/ir/attention.h"
#include "compiler/reference/shown.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/program.h"

namespace attn::tools {

// Multiplications and additions over all scores: of Q K^T and P V, and in the backward of Q K^T and
// dO V^T, for dQ, dK and dV. Every dimension must be bound.
double dense_flops(const ir::Attention& attention,
                   plan::Direction direction = plan::Direction::forward);

// The counted FLOPs of a benchmark: those of the scores that are shown.
double shown_flops(const ir::Attention& attention, const reference::Shown& shown,
                   plan::Direction direction = plan::Direction::forward);

// The most FLOPs a second that the target's tensor cores make of 16-bit factors and f32 sums,
// without sparsity, at the highest clock; nothing for an architecture that is not in the table.
std::optional<double> peak_flops(const plan::Target& target);

// The count, or nothing where it says that the target made more than its peak in that time: then
// less was computed than was counted.
std::optional<double> possible_flops(double flops, double milliseconds, const plan::Target& target);

}  // namespace attn::tools
