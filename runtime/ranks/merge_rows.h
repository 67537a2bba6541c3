// Which rows are merged from which: the entries of RanksMerge (ranks_parameters.h).
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/ranks/intervals.h"

namespace attn::ranks {

// Numbers of places in entries.
inline constexpr std::int32_t kHome = 0;            // the caller's tensors
inline constexpr std::int32_t kHomeStatistics = 1;  // of them, statistics alone
inline constexpr std::int32_t kFirstPlace = 2;

// Rows that are written.
struct WrittenRows {
  std::int32_t place = kHome;
  const Intervals& all;  // that the place has
  Intervals rows;        // of them, those to be written
};

class MergeRows {
 public:
  // Merges each of the rows from all `sources` that have it; source i is place kFirstPlace + i.
  void add(const WrittenRows& written, const std::vector<const Intervals*>& sources);

  std::int64_t count() const { return static_cast<std::int64_t>(first_.size()) - 1; }

  // If all rows have the entries of the first, so many rows further as they are, keeps those alone.
  bool shorten();

  const std::vector<std::int32_t>& first() const { return first_; }      // [count + 1]
  const std::vector<std::int32_t>& entries() const { return entries_; }  // pairs of place and row
  const std::vector<std::int32_t>& numbers() const { return numbers_; }  // of the rows

 private:
  std::vector<std::int32_t> first_ = {0};
  std::vector<std::int32_t> entries_;
  std::vector<std::int32_t> numbers_;
};

}  // namespace attn::ranks
