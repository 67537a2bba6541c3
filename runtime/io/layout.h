// Converts between logical order and the bytes of a strided tensor, as in device memory. Dims and
// strides are in elements; strides may be in any order, and are not negative.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"

namespace attn::io {

// Elements from the first to the last in memory, gaps included; 0 if a dim is 0. Errors:
// invalid_argument if the ranks differ, a dim or stride is negative, or the size exceeds 2^63 - 1.
Result<std::int64_t> storage_elements(const std::vector<std::int64_t>& dims,
                                      const std::vector<std::int64_t>& strides);

// Dense row-major strides.
std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& dims);

// Converts row-major `values` of shape `dims` to `type` in the layout `strides`. Floats round to
// nearest even. Bytes outside all elements are set to `gap`. Errors: invalid_argument for a value
// that does not fit an integer type (with its index), or strides by which two elements that differ
// have one address.
Result<std::vector<std::byte>> pack(std::span<const double> values,
                                    const std::vector<std::int64_t>& dims,
                                    const std::vector<std::int64_t>& strides, DType type,
                                    std::byte gap = std::byte{0});
// The same of a tensor's values, those of i64 exactly.
Result<std::vector<std::byte>> pack(const HostTensor& tensor, const std::vector<std::int64_t>& dims,
                                    const std::vector<std::int64_t>& strides, DType type);

// The reverse: row-major values of the tensor in `bytes`, with dtype `type`. Elements may overlap
// (stride 0). Errors: invalid_argument if `bytes` is too short.
Result<HostTensor> unpack(std::span<const std::byte> bytes, const std::vector<std::int64_t>& dims,
                          const std::vector<std::int64_t>& strides, DType type);

}  // namespace attn::io
