// Constant folding, with the semantics of ops.def.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "compiler/ir/dag.h"

namespace attn::ir {

using Constant = std::variant<bool, std::int64_t, double>;

// The value of a const_* node, or nullopt for another node.
std::optional<Constant> constant_of(const Dag& dag, ExprId id);

// Returns a node with this value, new or existing.
ExprId add_constant(Dag& dag, const Constant& value, SourcePos pos);

// The value of `op` on constants of the types its rule requires. nullopt for leaves and loads, for
// integer results that do not fit in 32 bits (they wrap at run time, but this is never intended in
// a size or a window), for division by the integer 0, and for shifts outside 0..31.
std::optional<Constant> fold(Op op, std::span<const Constant> operands);

}  // namespace attn::ir
