// How much work an attention is, whatever computes it.
#pragma once

#include <cstdint>

#include "compiler/ir/attention.h"
#include "compiler/passes/band.h"

namespace attn::tools {

// Multiplications and additions of Q K^T and P V over all scores. Every dimension must be bound.
double dense_flops(const ir::Attention& attention);

// The share of the scores that lies inside the band, over all rows.
double band_share(const ir::Attention& attention, const passes::Band& band);

// The counted FLOPs of a benchmark: those of the scores inside the band of full lengths (masks that
// are no band count as visible).
double visible_flops(const ir::Attention& attention);

}  // namespace attn::tools
