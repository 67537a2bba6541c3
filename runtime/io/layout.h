// Between logical order and the bytes of a strided tensor, as device memory holds it. Dims and
// strides are in elements; strides are in any order and not negative.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/io/host_tensor.h"

namespace attn::io {

// Elements from the first to the last in memory, gaps included; 0 when a dim is 0. Errors:
// invalid_argument for ranks that differ, a negative dim or stride, or a size beyond 2^63 - 1.
Result<std::int64_t> storage_elements(const std::vector<std::int64_t>& dims,
                                      const std::vector<std::int64_t>& strides);

// Row-major strides of dense dims.
std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& dims);

// Row-major `values` of shape `dims`, converted to `type` and laid out by `strides`. Floats round
// to nearest even. Bytes that belong to no element are `gap`. Errors: invalid_argument for a value
// that does not fit an integer type (with its place) or strides that put two elements in one place.
Result<std::vector<std::byte>> pack(std::span<const double> values,
                                    const std::vector<std::int64_t>& dims,
                                    const std::vector<std::int64_t>& strides, DType type,
                                    std::byte gap = std::byte{0});

// The reverse: row-major values of the tensor in `bytes`, whose dtype is kept. Elements may share
// places (stride 0). Errors: invalid_argument when `bytes` is too short.
Result<HostTensor> unpack(std::span<const std::byte> bytes, const std::vector<std::int64_t>& dims,
                          const std::vector<std::int64_t>& strides, DType type);

}  // namespace attn::io
