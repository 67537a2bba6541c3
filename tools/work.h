// How much work an attention is, whatever computes it.
#pragma once

#include <cstdint>

#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::tools {

// Multiplications and additions over all scores: of Q K^T and P V, and in the backward of Q K^T and
// dO V^T, for dQ, dK and dV. Every dimension must be bound.
double dense_flops(const ir::Attention& attention,
                   plan::Direction direction = plan::Direction::forward);

// The counted FLOPs of a benchmark: those of the scores inside the band of full lengths that
// contains what the masks show (passes::with_cover), hidden ones among them too.
double visible_flops(const ir::Attention& attention,
                     plan::Direction direction = plan::Direction::forward);

}  // namespace attn::tools
