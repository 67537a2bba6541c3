// The value of an operation on constants, exactly as the meaning in ops.def has it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "compiler/ir/dag.h"

namespace attn::ir {

using Constant = std::variant<bool, std::int64_t, double>;

// The constant a const_* node holds, or nothing for another node.
std::optional<Constant> constant_of(const Dag& dag, ExprId id);

// The node that holds it, new or existing.
ExprId add_constant(Dag& dag, const Constant& value, SourcePos pos);

// The value of `op` on constants of the types its rule wants. Nothing where it has none: leaves and
// loads, an integer result that leaves 32 bits (at run time it wraps, but a size or a window that
// does so is never meant), division by the integer 0, a shift outside 0..31.
std::optional<Constant> fold(Op op, std::span<const Constant> operands);

}  // namespace attn::ir
