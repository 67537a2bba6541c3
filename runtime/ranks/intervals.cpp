#include "runtime/ranks/intervals.h"

#include <fmt/format.h>

#include <algorithm>

namespace attn::ranks {

std::int64_t count(const Intervals& set) {
  std::int64_t count = 0;
  for (const Interval& each : set) count += each.size();
  return count;
}

void append(Intervals& set, Interval next) {
  if (next.size() <= 0) return;
  if (!set.empty() && set.back().end == next.begin) {
    set.back().end = next.end;
  } else {
    set.push_back(next);
  }
}

Intervals both(const Intervals& x, const Intervals& y) {
  Intervals all = x;
  all.insert(all.end(), y.begin(), y.end());
  std::ranges::sort(all, {}, &Interval::begin);
  Intervals set;
  for (Interval each : all) {
    if (!set.empty()) each.begin = std::max(each.begin, set.back().end);
    append(set, each);
  }
  return set;
}

Intervals common(const Intervals& x, const Intervals& y) {
  Intervals set;
  for (std::size_t i = 0, j = 0; i < x.size() && j < y.size();) {
    append(set, {std::max(x[i].begin, y[j].begin), std::min(x[i].end, y[j].end)});
    x[i].end < y[j].end ? ++i : ++j;
  }
  return set;
}

Intervals rest(const Intervals& x, const Intervals& y) {
  Intervals set;
  std::size_t j = 0;
  for (const Interval& each : x) {
    std::int64_t begin = each.begin;
    while (j < y.size() && y[j].end <= begin) ++j;
    for (std::size_t k = j; k < y.size() && y[k].begin < each.end; ++k) {
      append(set, {begin, y[k].begin});
      begin = std::max(begin, y[k].end);
    }
    append(set, {begin, each.end});
  }
  return set;
}

bool contains(const Intervals& x, const Intervals& y) { return rest(y, x).empty(); }

std::vector<std::int64_t> numbers(const Intervals& set) {
  std::vector<std::int64_t> all;
  all.reserve(static_cast<std::size_t>(count(set)));
  for (const Interval& each : set) {
    for (std::int64_t number = each.begin; number < each.end; ++number) all.push_back(number);
  }
  return all;
}

std::string to_text(const Intervals& set, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < set.size(); ++i) {
    if (set.size() > most && i == most / 2) {
      text += fmt::format(", .. {} more", set.size() - most);
      i += set.size() - most;
    }
    text += fmt::format("{}{}..{}", text.empty() ? "" : ", ", set[i].begin, set[i].end);
  }
  return text;
}

Interval Blocks::of(std::int64_t block) const {
  return {block * unit, std::min(size, (block + 1) * unit)};
}

}  // namespace attn::ranks
