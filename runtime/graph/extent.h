// How far a strided tensor reaches, and whether its elements share places, computed so that no dims
// or strides can overflow.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace attn {

// The largest element offset of a tensor with these dims (positive) and strides (not negative), or
// nothing when the ranks differ, a dim or stride is out of range, or it does not fit in 60 bits
// (which leaves room for the size of an element).
std::optional<std::int64_t> last_offset(std::span<const std::int64_t> dims,
                                        std::span<const std::int64_t> strides);

// Of a tensor whose elements lie one behind the other, the last dimension's next to each other.
std::vector<std::int64_t> row_major_strides(std::span<const std::int64_t> dims);

// Whether two elements may share one place: false when, sorted, each stride (positive) steps over
// all that smaller ones reach.
bool overlaps(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides);

}  // namespace attn
