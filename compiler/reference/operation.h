// One operation on numbers, in double.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <span>

#include "compiler/ir/op.h"

namespace attn::reference {

// A wide integer in a double: 64 bits that are not its value.
inline double as_bits(std::int64_t wide) { return std::bit_cast<double>(wide); }
inline std::int64_t wide_of(double bits) { return std::bit_cast<std::int64_t>(bits); }

// The value of an op of rule arithmetic, real_function, comparison, bits, to_real, to_int or
// truncate, widen or narrow, or `not`, for operands of type `type`. Booleans are 1 and 0. Integers
// are exact doubles, wide ones the bits of doubles (as_bits); results wrap to 32 or 64 bits as they
// do in a kernel. nullopt if there is no value: an integer division or modulo by 0, a shift outside
// 0..31 or, of wide integers, 0..63, a real that does not truncate to a 32-bit integer.
//
// min and max of reals are NaN if either operand is.
std::optional<double> operation(ir::Op op, ir::Type type, std::span<const double> operands);

}  // namespace attn::reference
