// How far a strided tensor reaches, computed so that no dims or strides can overflow.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace attn {

// The largest element offset of a tensor with these dims (positive) and strides (not negative), or
// nothing when the ranks differ, a dim or stride is out of range, or it does not fit in 60 bits
// (which leaves room for the size of an element).
std::optional<std::int64_t> last_offset(std::span<const std::int64_t> dims,
                                        std::span<const std::int64_t> strides);

}  // namespace attn
