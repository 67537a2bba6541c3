#include "runtime/graph/extent.h"

namespace attn {
namespace {

constexpr std::int64_t kLargest = (std::int64_t{1} << 60) - 1;

}  // namespace

std::optional<std::int64_t> last_offset(std::span<const std::int64_t> dims,
                                        std::span<const std::int64_t> strides) {
  if (dims.size() != strides.size()) return std::nullopt;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    std::int64_t step = 0;
    if (dims[i] < 1 || strides[i] < 0) return std::nullopt;
    if (__builtin_mul_overflow(dims[i] - 1, strides[i], &step)) return std::nullopt;
    if (__builtin_add_overflow(offset, step, &offset) || offset > kLargest) return std::nullopt;
  }
  return offset;
}

}  // namespace attn
