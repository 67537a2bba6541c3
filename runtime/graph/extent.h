// How far a strided tensor reaches, and whether its elements share places, computed so that no dims
// or strides can overflow.
#pragma once

#include <cstddef>
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

// How many elements dims (positive) make, or nothing when a dim is out of range or the product does
// not fit in 60 bits. A stride of 0 lets a tensor have more elements than last_offset() says.
std::optional<std::int64_t> element_count(std::span<const std::int64_t> dims);

// Whether memory can hold such a tensor: at most 2^60 bytes, counting each element, and its last
// one ends within 2^60 bytes too. Sums of a few such tensors do not overflow.
bool fits_memory(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides,
                 std::size_t element_bytes);

// Of a dense row-major tensor: the last dimension is contiguous. A stride that does not fit in 63
// bits is the largest number, which last_offset() refuses.
std::vector<std::int64_t> row_major_strides(std::span<const std::int64_t> dims);

// Whether two elements may share one place: false when, sorted, each stride (positive) steps over
// all that smaller ones reach.
bool overlaps(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides);

}  // namespace attn
