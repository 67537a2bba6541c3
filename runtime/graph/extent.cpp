#include "runtime/graph/extent.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace attn {
namespace {

constexpr std::int64_t kLargest = (std::int64_t{1} << 60) - 1;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

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

std::optional<std::int64_t> element_count(std::span<const std::int64_t> dims) {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) {
    if (dim < 1 || __builtin_mul_overflow(count, dim, &count) || count > kLargest) {
      return std::nullopt;
    }
  }
  return count;
}

bool fits_memory(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides,
                 std::size_t element_bytes) {
  const auto most = kMostBytes / static_cast<std::int64_t>(element_bytes);
  const auto count = element_count(dims);
  const auto last = last_offset(dims, strides);
  return count && last && *count <= most && *last < most;
}

std::vector<std::int64_t> row_major_strides(std::span<const std::int64_t> dims) {
  std::vector<std::int64_t> strides(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) {
    if (__builtin_mul_overflow(strides[i], dims[i], &strides[i - 1])) {
      strides[i - 1] = std::numeric_limits<std::int64_t>::max();
    }
  }
  return strides;
}

bool overlaps(std::span<const std::int64_t> dims, std::span<const std::int64_t> strides) {
  if (std::ranges::find(dims, 0) != dims.end()) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // stride, size
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] > 1) axes.emplace_back(strides[i], dims[i]);
  }
  std::ranges::sort(axes);
  std::int64_t reached = 0;
  for (const auto& [stride, size] : axes) {
    if (stride <= reached) return true;
    std::int64_t step = 0;
    const bool huge = __builtin_mul_overflow(stride, size - 1, &step) ||
                      __builtin_add_overflow(reached, step, &reached);
    if (huge) return false;
  }
  return false;
}

}  // namespace attn
