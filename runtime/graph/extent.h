// Extent and overlap of strided tensors, computed without overflow for any dims and strides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace attn {

// The largest element offset of a tensor with these dims (positive) and strides (not negative);
// nullopt if the ranks differ, a dim or stride is out of range, or the offset does not fit in 60
// bits (which leaves room for the element size).
std::optional<std::int64_t> last_offset(std::span<const std::int64_t> dims,
                                        std::span<const std::int64_t> strides);

// Product of the dims (positive); nullopt if a dim is out of range or the product does not fit in
// 60 bits. With strides of 0 it can exceed last_offset() + 1.
std::optional<std::int64_t> element_count(std::span<const std::int64_t> dims);

// Whether the tensor has at most 2^60 bytes, both counting every element and up to the end of the
// last one. Sums of a few such sizes do not overflow.
bool fits_memory(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides,
                 std::size_t element_bytes);

// Strides of a dense row-major tensor: the last dimension is contiguous. A stride that does not fit
// in 63 bits becomes the maximum, which last_offset() rejects.
std::vector<std::int64_t> row_major_strides(std::span<const std::int64_t> dims);

// Whether two elements may share an address: false if, in sorted order, each stride (positive)
// steps over the extent of the smaller ones.
bool overlaps(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides);

}  // namespace attn
