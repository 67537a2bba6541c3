// Host values in logical order, independent of dtype and layout: the common format of .npy files,
// the reference evaluator and the tools.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/dtype.h"

namespace attn::io {

// Row-major. Integers and booleans are held as exact doubles (readers reject i64 values beyond
// 2^53).
struct HostTensor {
  DType dtype = DType::f64;
  std::vector<std::int64_t> dims;
  std::vector<double> values;
};

// Product of the dims; 1 for rank 0.
std::int64_t element_count(const std::vector<std::int64_t>& dims);

}  // namespace attn::io
