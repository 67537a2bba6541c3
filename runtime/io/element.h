// Converts one element between its value and its bytes (little endian).
#pragma once

#include <cstddef>

#include "runtime/base/dtype.h"

namespace attn::io {

// Whether `value` can be stored as `type`: any value for floats (they round to nearest even),
// integers in the type's range (i64: within +-2^53) for integers, 0 and 1 for booleans.
bool fits(DType type, double value);

// Writes size_of(type) bytes. Requires fits(type, value).
void store(DType type, double value, std::byte* bytes);

// Reads size_of(type) bytes. A boolean is 1 for any nonzero byte; an i64 beyond 2^53 is rounded.
double load(DType type, const std::byte* bytes);

}  // namespace attn::io
