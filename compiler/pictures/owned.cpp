#include "compiler/pictures/owned.h"

#include <algorithm>

namespace attn::pictures {
namespace {

struct Overlap {
  std::int64_t cell, numbers;
};

// Cells that have any of the numbers, ascending.
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
  void add(std::uint8_t owner, double scores) {
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
  bool is_shared() const { return most_ < all_; }

 private:
  std::uint8_t last_ = ByKernel::kNone, of_most_ = ByKernel::kNone;
  double of_last_ = 0, most_ = 0, all_ = 0;
};

class Owners {
 public:
  Owners(std::span<const Owned> owned, const masks_of_values::Place& place,
         const masks::BlockMap& map, const masks_of_values::CountVisible& visible)
      : map_(map), visible_(visible) {
    for (const Owned& part : owned) {
      if (part.heads.begin <= place.head && place.head < part.heads.end) owned_.push_back(&part);
    }
  }

  Computed run() {
    const std::vector<Counting> all = counts();
    std::vector<bool> looked_at(all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      looked_at[i] = all[i].is_shared() && map_.blocks[i] == masks::Block::partial;
    const std::vector<Counting> shared = counts(&looked_at);
    Computed made{std::vector<ByKernel>(all.size())};
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (map_.blocks[i] == masks::Block::empty) continue;
      // A block that seems partial may show nothing.
      const std::uint8_t owner = shared[i].owner();
      made.cells[i].kernel = owner == ByKernel::kNone ? all[i].owner() : owner;
    }
    return made;
  }

 private:
  // Counts all scores, or the visible ones of the cells in `looked_at`.
  std::vector<Counting> counts(const std::vector<bool>* looked_at = nullptr) const {
    std::vector<Counting> counts(map_.blocks.size());
    for (const Owned* part : owned_) {
      const std::vector<Overlap> columns = cells_of(part->columns, map_.columns);
      for (const auto& [row, rows] : cells_of(part->rows, map_.rows)) {
        for (const auto& [column, numbers] : columns) {
          const auto cell = static_cast<std::size_t>(row * map_.width + column);
          if (looked_at != nullptr && !(*looked_at)[cell]) continue;
          counts[cell].add(part->owner, looked_at != nullptr ? visible_of(*part, row, column)
                                                             : static_cast<double>(rows * numbers));
        }
      }
    }
    return counts;
  }

  double visible_of(const Owned& part, std::int64_t row, std::int64_t column) const {
    double sum = 0;
    for (const ranks::Interval& rows : in_cell(part.rows, row, map_.rows)) {
      for (const ranks::Interval& columns : in_cell(part.columns, column, map_.columns))
        sum += visible_(rows, columns);
    }
    return sum;
  }

  static ranks::Intervals in_cell(const ranks::Intervals& set, std::int64_t cell,
                                  std::int64_t size) {
    return ranks::common(set, {{cell * size, (cell + 1) * size}});
  }

  const masks::BlockMap& map_;
  const masks_of_values::CountVisible& visible_;
  std::vector<const Owned*> owned_;
};

}  // namespace

Computed owned_at(std::span<const Owned> owned, const masks_of_values::Place& place,
                  const masks::BlockMap& map, const masks_of_values::CountVisible& visible) {
  return Owners(owned, place, map, visible).run();
}

}  // namespace attn::pictures
