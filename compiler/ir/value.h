// The values of operations on numbers: folding and the reference compute with these, and
// tests/oracle compares them with numpy.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "compiler/ir/dag.h"
#include "compiler/ir/op.h"

namespace attn::ir {

// The value of an operation with rule arithmetic or bits, for operands within 32 bits: exact, so
// the result may need 64. nullopt for a division or modulo by 0 and a shift outside 0..31. `y` is
// ignored if the operation has one operand.
std::optional<std::int64_t> value_of_integers(Op op, std::int64_t x, std::int64_t y);

// The same for wide operands, of 64 bits: results wrap, and shifts are by 0..63.
std::optional<std::int64_t> value_of_wide(Op op, std::int64_t x, std::int64_t y);

// The integer of 32 bits that is nearest.
std::int32_t narrowed(std::int64_t x);

// The value of an operation with rule arithmetic or real_function. min and max are NaN if either
// operand is.
double value_of_reals(Op op, double x, double y);

// The value of an operation with rule comparison, for two reals or two integers (which are exact
// doubles).
bool value_of_comparison(Op op, double x, double y);
bool value_of_wide_comparison(Op op, std::int64_t x, std::int64_t y);

// Rounded toward zero. nullopt for NaN and what 32 bits do not hold.
std::optional<std::int64_t> truncated(double x);

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
