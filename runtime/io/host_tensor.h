// Values on the host in logical order, whatever the dtype: what .npy files, the reference evaluator
// and the tools exchange.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/dtype.h"

namespace attn::io {

// Row-major. Integers and booleans are held as exact doubles (an i64 beyond 2^53 is refused where
// it is read).
struct HostTensor {
  DType dtype = DType::f64;
  std::vector<std::int64_t> dims;
  std::vector<double> values;
};

// Product of the dims; 1 for rank 0.
std::int64_t element_count(const std::vector<std::int64_t>& dims);

}  // namespace attn::io
