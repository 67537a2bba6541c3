// Sets of row or key numbers, as intervals.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attn::ranks {

// begin .. end - 1.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

// Intervals in order; neither empty nor adjacent.
using Intervals = std::vector<Interval>;

std::int64_t count(const Intervals& set);
// Adds an interval that begins at the end of the last one or later; an empty one is ignored.
void append(Intervals& set, Interval next);
Intervals both(const Intervals& x, const Intervals& y);    // in x or y
Intervals common(const Intervals& x, const Intervals& y);  // in x and y
Intervals rest(const Intervals& x, const Intervals& y);    // in x, not in y
bool contains(const Intervals& x, const Intervals& y);     // all of y are in x
std::vector<std::int64_t> numbers(const Intervals& set);   // ascending

// "0..64, 448..512"; the middle of more than `most` is left out.
std::string to_text(const Intervals& set, std::size_t most = 4);

// The numbers 0 .. size - 1 in blocks of `unit`; the last one may be smaller.
struct Blocks {
  std::int64_t size = 0;
  std::int64_t unit = 1;

  std::int64_t count() const { return (size + unit - 1) / unit; }
  Interval of(std::int64_t block) const;
  bool operator==(const Blocks&) const = default;
};

}  // namespace attn::ranks
