// Host values in logical order, independent of dtype and layout: the common format of .npy files,
// the reference evaluator and the tools.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/dtype.h"

namespace attn::io {

// Row-major. Integers and booleans are exact doubles, but an i64 beyond 2^53 is the nearest one:
// then `wide` has all elements exactly.
struct HostTensor {
  DType dtype = DType::f64;
  std::vector<std::int64_t> dims;
  std::vector<double> values;
  std::vector<std::int64_t> wide{};  // of i64, or empty

  // An element of a tensor of integers.
  std::int64_t integer(std::size_t i) const {
    return wide.empty() ? static_cast<std::int64_t>(values[i]) : wide[i];
  }
};

// A tensor of i64.
HostTensor tensor_of_wide(std::vector<std::int64_t> dims, std::vector<std::int64_t> elements);

// Product of the dims; 1 for rank 0.
std::int64_t element_count(const std::vector<std::int64_t>& dims);

}  // namespace attn::io
