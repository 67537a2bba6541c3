#include "compiler/masks_of_values/known_values.h"

#include <algorithm>
#include <utility>

#include "runtime/base/ceil_div.h"

namespace attn::masks_of_values {
namespace {

using masks::Range;

constexpr std::int64_t kFew = 32;  // elements that are faster to read than to look up
constexpr Range kNothing{INT64_MAX, INT64_MIN};

Range both(const Range& x, const Range& y) {
  return {std::min(x.low, y.low), std::max(x.high, y.high)};
}

template <typename Element>
Range range_of(std::span<const Element> elements) {
  Range range = kNothing;
  for (const Element element : elements) {
    const auto value = static_cast<std::int64_t>(element);
    range = {std::min(range.low, value), std::max(range.high, value)};
  }
  return range;
}

// Advances to the next row between the corners; false after the last. Axes but the last.
bool step(std::span<std::int64_t> indexes, std::span<const Range> corners) {
  for (std::size_t axis = indexes.size(); axis-- > 0;) {
    if (++indexes[axis] <= corners[axis].high) return true;
    indexes[axis] = corners[axis].low;
  }
  return false;
}

}  // namespace

KnownValues::KnownValues(const reference::Bindings& values) : values_(values) {
  for (const auto& [name, tensor] : values.tensors) {
    if (!is_float(tensor.dtype)) tensors_[name].of = &tensor;
  }
}

template <typename Element>
KnownValues::Row KnownValues::row_of(std::span<const Element> elements) {
  Row row{.is_known = true, .is_sorted = std::ranges::is_sorted(elements)};
  if (row.is_sorted) return row;
  const auto size = static_cast<std::int64_t>(elements.size());
  std::vector<Range> level(static_cast<std::size_t>(ceil_div(size, kFew)));
  for (std::size_t i = 0; i < level.size(); ++i) {
    const std::size_t begin = i * kFew;
    level[i] =
        range_of(elements.subspan(begin, std::min<std::size_t>(kFew, elements.size() - begin)));
  }
  while (level.size() > 1) {
    std::vector<Range> next((level.size() + 1) / 2, kNothing);
    for (std::size_t i = 0; i < level.size(); ++i) next[i / 2] = both(next[i / 2], level[i]);
    row.levels.push_back(std::exchange(level, std::move(next)));
  }
  row.levels.push_back(std::move(level));
  return row;
}

template <typename Element>
Range KnownValues::range_in(const Row& row, std::span<const Element> elements, std::int64_t first,
                            std::int64_t end) {
  const auto of = [&](std::int64_t from, std::int64_t to) {
    return range_of(elements.subspan(static_cast<std::size_t>(from),
                                     static_cast<std::size_t>(std::max(from, to) - from)));
  };
  if (row.is_sorted) return both(of(first, first + 1), of(end - 1, end));
  std::int64_t low = ceil_div(first, kFew), high = end / kFew;  // whole ones of the level
  if (low >= high) return of(first, end);
  Range range = both(of(first, low * kFew), of(high * kFew, end));
  for (const std::vector<Range>& level : row.levels) {
    if (low >= high) break;
    if (low % 2 != 0) range = both(range, level[static_cast<std::size_t>(low++)]);
    if (high % 2 != 0) range = both(range, level[static_cast<std::size_t>(--high)]);
    low /= 2, high /= 2;
  }
  return range;
}

template <typename Element>
Range KnownValues::range_along(Tensor& tensor, std::span<const Element> all, std::int64_t row,
                               const Range& columns) {
  const auto size = static_cast<std::size_t>(tensor.of->dims.back());
  const auto elements = all.subspan(static_cast<std::size_t>(row) * size, size);
  if (columns.high - columns.low < kFew) {
    return range_of(elements.subspan(static_cast<std::size_t>(columns.low),
                                     static_cast<std::size_t>(columns.high - columns.low + 1)));
  }
  if (tensor.rows.empty()) tensor.rows.resize(all.size() / size);
  Row& known = tensor.rows[static_cast<std::size_t>(row)];
  if (!known.is_known) known = row_of(elements);
  return range_in(known, elements, columns.low, columns.high + 1);
}

Range KnownValues::range_along(Tensor& tensor, std::int64_t row, const Range& columns) {
  if (!tensor.of->wide.empty())
    return range_along(tensor, std::span<const std::int64_t>(tensor.of->wide), row, columns);
  return range_along(tensor, std::span<const double>(tensor.of->values), row, columns);
}

std::optional<Range> KnownValues::elements(std::string_view tensor,
                                           std::span<const Range> indexes) const {
  const auto found = tensors_.find(tensor);
  if (found == tensors_.end()) return std::nullopt;
  const std::vector<std::int64_t>& dims = found->second.of->dims;
  corners_.clear();
  at_.clear();
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    const Range& index = indexes[axis];
    // A score with an index outside has no value, and those of others do not decide it.
    if (index.low < 0 || index.high >= dims[axis]) return std::nullopt;
    corners_.push_back(index);
    at_.push_back(index.low);
  }
  if (dims.empty()) {
    const std::int64_t value = found->second.of->integer(0);
    return Range{value, value};
  }
  at_.pop_back();
  Range range = kNothing;
  do {
    std::int64_t row = 0;
    for (std::size_t axis = 0; axis < at_.size(); ++axis) row = row * dims[axis] + at_[axis];
    range = both(range, range_along(found->second, row, corners_.back()));
  } while (step(at_, corners_));
  return range;
}

std::optional<Range> KnownValues::param(std::string_view name) const {
  const auto found = values_.params.find(name);
  if (found == values_.params.end()) return std::nullopt;
  const auto value = static_cast<std::int64_t>(found->second);
  return Range{value, value};
}

}  // namespace attn::masks_of_values
