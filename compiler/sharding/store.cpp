#include "compiler/sharding/store.h"

#include <fmt/format.h>

#include <algorithm>

namespace attn::sharding {
namespace {

std::int64_t width_of(const Slice& slice) { return slice.values.dims.back(); }

// Where each interval of the set begins, counted within the set.
std::int64_t place_of(const Intervals& set, std::int64_t number) {
  std::int64_t before = 0;
  for (const Interval& each : set) {
    if (number < each.end) return before + number - each.begin;
    before += each.size();
  }
  return before;
}

// Calls with both elements of all that both have.
template <typename Visit>
void visit_common(const Slice& from, Slice& to, const Visit& visit) {
  const std::int64_t width = width_of(to), batches = to.values.dims.front();
  const std::int64_t of_from = count(from.indices), of_to = count(to.indices);
  const Interval heads{std::max(from.heads.begin, to.heads.begin),
                       std::min(from.heads.end, to.heads.end)};
  for (const Interval& run : common(from.indices, to.indices)) {
    const std::int64_t first = place_of(from.indices, run.begin),
                       second = place_of(to.indices, run.begin);
    for (std::int64_t b = 0; b < batches; ++b) {
      for (std::int64_t h = heads.begin; h < heads.end; ++h) {
        const std::int64_t row = b * from.heads.size() + h - from.heads.begin;
        const std::int64_t to_row = b * to.heads.size() + h - to.heads.begin;
        const double* source = from.values.values.data() + (row * of_from + first) * width;
        double* target = to.values.values.data() + (to_row * of_to + second) * width;
        for (std::int64_t i = 0; i < run.size() * width; ++i) visit(target[i], source[i]);
      }
    }
  }
}

}  // namespace

Slice zeros(std::int64_t batches, Interval heads, const Intervals& indices, std::int64_t width,
            double value) {
  Slice slice{heads, indices, {DType::f64, {batches, heads.size(), count(indices), width}, {}}};
  slice.values.values.assign(static_cast<std::size_t>(io::element_count(slice.values.dims)), value);
  return slice;
}

void copy_common(const Slice& from, Slice& to) {
  visit_common(from, to, [](double& x, double y) { x = y; });
}

void combine_common(const Slice& from, Slice& to, Combine combine) {
  visit_common(from, to, combine);
}

Result<Slice> taken(const std::vector<Slice>& from, Interval heads, const Intervals& indices,
                    const std::string& what) {
  Intervals found;
  Slice slice;
  for (const Slice& each : from) {
    if (each.heads.begin > heads.begin || each.heads.end < heads.end) continue;
    if (slice.values.dims.empty())
      slice = zeros(each.values.dims.front(), heads, indices, width_of(each));
    copy_common(each, slice);
    found = both(found, common(each.indices, indices));
  }
  const Intervals lacking = rest(indices, found);
  if (lacking.empty()) return slice;
  return {ErrorCode::internal, fmt::format("{} lacks {}", what, to_text(lacking))};
}

}  // namespace attn::sharding
