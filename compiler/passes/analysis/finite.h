// Whether an expression can be infinite or NaN.
#pragma once

#include "compiler/ir/attention.h"

namespace attn::passes {

// What the score itself may be.
enum class Score : std::uint8_t { finite, infinite };

// Sound, not tight: true when the real expression is a finite number wherever the score is one (or
// also where it is infinite), sums and products that leave the range of f32 aside. Tensors and
// params may hold anything.
bool is_finite(const ir::Attention& attention, ir::ExprId id, Score score = Score::finite);

}  // namespace attn::passes
