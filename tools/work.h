// FLOP counts of an attention.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/reference/shown.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/program.h"

namespace attn::tools {

// FLOPs of the matrix products over all scores: Q K^T and P V in the forward; Q K^T, dO V^T, dQ, dK
// and dV in the backward; of all branches. Every dimension must be bound.
double dense_flops(const ir::Attention& attention,
                   plan::Direction direction = plan::Direction::forward);

// The same of the attention alone, without its branches.
double own_flops(const ir::Attention& attention,
                 plan::Direction direction = plan::Direction::forward);

// FLOPs of the visible scores, for benchmarks: `shown` is of each of ir::attentions_of.
double shown_flops(const ir::Attention& attention, const std::vector<reference::Shown>& shown,
                   plan::Direction direction = plan::Direction::forward);

// The type of the factors of a program's products: what the maps of its attention kernel read,
// where it has one of attnc's own, else `dtype`, the attention's. (attnc's backward of 8 bits
// widens them; kernels without maps, those of warps, have products of 16 bits.)
DType type_of_products(const plan::Program& program, DType dtype);

// Peak FLOP/s of the target's tensor cores at the highest clock: factors of `dtype` (of 16 bits or
// 8), f32 sums, dense. Nothing for an architecture that is not in the table.
std::optional<double> peak_flops(const plan::Target& target, DType dtype = DType::bf16);

// `flops`, or nothing if it implies more than the target's peak in that time: then the kernel
// computed less than was counted.
std::optional<double> possible_flops(double flops, double milliseconds, const plan::Target& target,
                                     DType dtype = DType::bf16);

}  // namespace attn::tools
