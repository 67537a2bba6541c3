#include "runtime/io/host_tensor.h"

namespace attn::io {

std::int64_t element_count(const std::vector<std::int64_t>& dims) {
  std::int64_t count = 1;
  for (std::int64_t dim : dims) count *= dim;
  return count;
}

}  // namespace attn::io
