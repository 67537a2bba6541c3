#include "runtime/io/host_tensor.h"

#include <algorithm>
#include <utility>

namespace attn::io {

HostTensor tensor_of_wide(std::vector<std::int64_t> dims, std::vector<std::int64_t> elements) {
  HostTensor tensor{DType::i64, std::move(dims), {elements.begin(), elements.end()}};
  constexpr std::int64_t kExact = std::int64_t{1} << 53;  // above, doubles have gaps
  const auto is_exact = [](std::int64_t x) { return x > -kExact && x < kExact; };
  if (!std::ranges::all_of(elements, is_exact)) tensor.wide = std::move(elements);
  return tensor;
}

std::int64_t element_count(const std::vector<std::int64_t>& dims) {
  std::int64_t count = 1;
  for (std::int64_t dim : dims) count *= dim;
  return count;
}

}  // namespace attn::io
