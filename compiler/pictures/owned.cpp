#include "compiler/pictures/owned.h"

#include <algorithm>

namespace attn::pictures {
namespace {

struct Overlap {
  std::int64_t cell, numbers;
};

// With those that have any of the numbers, ascending.
std::vector<Overlap> cells_of(const ranks::Intervals& set, std::int64_t size) {
  std::vector<Overlap> cells;
  for (const ranks::Interval& each : set) {
    for (std::int64_t i = each.begin / size; i * size < each.end; ++i) {
      const std::int64_t numbers =
          std::min(each.end, (i + 1) * size) - std::max(each.begin, i * size);
      if (cells.empty() || cells.back().cell < i) cells.push_back({i, 0});
      cells.back().numbers += numbers;
    }
  }
  return cells;
}

// How many scores of a cell owners have, one owner after another.
class Counting {
 public:
  void add(std::uint8_t owner, std::int64_t scores) {
    if (owner != last_) of_last_ = 0;
    last_ = owner;
    all_ += scores;
    of_last_ += scores;
    if (of_last_ > most_) most_ = of_last_, of_most_ = owner;
  }
  std::uint8_t owner() const {
    if (all_ == 0) return ByKernel::kNone;
    return 2 * most_ > all_ ? of_most_ : ByKernel::kSeveral;
  }

 private:
  std::uint8_t last_ = ByKernel::kNone, of_most_ = ByKernel::kNone;
  std::int64_t of_last_ = 0, most_ = 0, all_ = 0;
};

}  // namespace

Computed owned_at(std::span<const Owned> owned, const Place& place, const passes::BlockMap& map) {
  std::vector<Counting> counts(map.blocks.size());
  for (const Owned& part : owned) {
    if (place.head < part.heads.begin || place.head >= part.heads.end) continue;
    const std::vector<Overlap> columns = cells_of(part.columns, map.columns);
    for (const auto& [row, rows] : cells_of(part.rows, map.rows)) {
      for (const auto& [column, numbers] : columns)
        counts[static_cast<std::size_t>(row * map.width + column)].add(part.owner, rows * numbers);
    }
  }
  Computed made{std::vector<ByKernel>(map.blocks.size())};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (map.blocks[i] != passes::Block::empty) made.cells[i].kernel = counts[i].owner();
  }
  return made;
}

}  // namespace attn::pictures
