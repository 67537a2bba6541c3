#include "compiler/pictures/known_values.h"

#include <algorithm>

namespace attn::pictures {
namespace {

using passes::Range;

constexpr std::int64_t kFew = 32;  // elements that are faster to read than to remember

// The smallest and largest of the elements between the corners, from `offset` on.
void widen(const io::HostTensor& tensor, std::span<const std::int64_t> corners, std::size_t axis,
           std::int64_t offset, Range& found) {
  if (axis == tensor.dims.size()) {
    const auto value = static_cast<std::int64_t>(tensor.values[static_cast<std::size_t>(offset)]);
    found = {std::min(found.low, value), std::max(found.high, value)};
    return;
  }
  for (std::int64_t i = corners[2 * axis]; i <= corners[2 * axis + 1]; ++i) {
    widen(tensor, corners, axis + 1, offset * tensor.dims[axis] + i, found);
  }
}

}  // namespace

std::optional<Range> KnownValues::elements(std::string_view tensor,
                                           std::span<const Range> indexes) const {
  const auto found = values_.tensors.find(tensor);
  if (found == values_.tensors.end() || is_float(found->second.dtype)) return std::nullopt;
  const std::vector<std::int64_t>& dims = found->second.dims;
  Corners corners;
  std::int64_t count = 1;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    // An index outside has no value.
    const std::int64_t low = std::max<std::int64_t>(indexes[axis].low, 0);
    const std::int64_t high = std::min(indexes[axis].high, dims[axis] - 1);
    if (low > high) return std::nullopt;
    corners.insert(corners.end(), {low, high});
    count *= high - low + 1;
  }
  if (count <= kFew) {
    Range range{INT32_MAX, INT32_MIN};
    widen(found->second, corners, 0, 0, range);
    return range;
  }
  auto& kept = kept_[std::string(tensor)];
  if (const auto known = kept.find(corners); known != kept.end()) return known->second;
  Range range{INT32_MAX, INT32_MIN};
  widen(found->second, corners, 0, 0, range);
  kept.emplace(std::move(corners), range);
  return range;
}

std::optional<Range> KnownValues::param(std::string_view name) const {
  const auto found = values_.params.find(name);
  if (found == values_.params.end()) return std::nullopt;
  const auto value = static_cast<std::int64_t>(found->second);
  return Range{value, value};
}

}  // namespace attn::pictures
