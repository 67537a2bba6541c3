// What the two parts of a weight over a sum are, by evaluation.
#pragma once

#include <optional>

#include "compiler/ir/attention.h"

namespace attn::ir {

// The value of a real expression of the term, the unit and constants, where the term (the leaf
// `score`) and the unit have these values. nullopt if it reads more, or if it is not finite.
std::optional<double> value_of_part(const Dag& dag, ExprId root, double term, double unit);

// Whether f is 0 wherever g is, so that keys whose terms of the sum are all 0 have no weights: then
// keys may be divided among parts, each with its own sum. False where that is not proven.
bool vanish_together(const Dag& dag, const Quotient& quotient);

}  // namespace attn::ir
