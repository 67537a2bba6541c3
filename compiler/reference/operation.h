// One operation on numbers, in double.
#pragma once

#include <optional>
#include <span>

#include "compiler/ir/op.h"

namespace attn::reference {

// The value of an op of rule arithmetic, real_function, comparison, bits, to_real, to_int or
// truncate, or `not`, for operands of type `type`. Booleans are 1 and 0. Integers are exact doubles
// and results wrap to 32 bits, as they do in a kernel. nullopt if there is no value: an integer
// division or modulo by 0, a shift outside 0..31, a real that does not truncate to a 32-bit
// integer.
//
// min and max of reals are NaN if either operand is.
std::optional<double> operation(ir::Op op, ir::Type type, std::span<const double> operands);

}  // namespace attn::reference
