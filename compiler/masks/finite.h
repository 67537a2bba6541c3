// Whether an expression can be infinite or NaN.
#pragma once

#include "compiler/ir/attention.h"

namespace attn::masks {

// What the score itself may be.
enum class Score : std::uint8_t { finite, infinite };

// True if the real expression is finite wherever the score is finite (or also where the product of
// q and k is infinite, which the scale makes a score of), ignoring sums and products that overflow
// f32. Sound, not tight. Tensors and params may hold anything.
bool is_finite(const ir::Attention& attention, ir::ExprId id, Score score = Score::finite);

}  // namespace attn::masks
