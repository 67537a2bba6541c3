#include "compiler/pictures/owned.h"

namespace attn::pictures {
namespace {

// Those that have any of the numbers, ascending.
std::vector<std::int64_t> cells_of(const ranks::Intervals& set, std::int64_t cell) {
  std::vector<std::int64_t> cells;
  for (const ranks::Interval& each : set) {
    for (std::int64_t i = each.begin / cell; i * cell < each.end; ++i) {
      if (cells.empty() || cells.back() < i) cells.push_back(i);
    }
  }
  return cells;
}

}  // namespace

Computed owned_at(std::span<const Owned> owned, const Place& place, const passes::BlockMap& map) {
  Computed made{std::vector<ByKernel>(map.blocks.size())};
  for (const Owned& part : owned) {
    if (place.head < part.heads.begin || place.head >= part.heads.end) continue;
    const std::vector<std::int64_t> columns = cells_of(part.columns, map.columns);
    for (const std::int64_t row : cells_of(part.rows, map.rows)) {
      for (const std::int64_t column : columns) {
        const auto at = static_cast<std::size_t>(row * map.width + column);
        if (map.blocks[at] == passes::Block::empty) continue;
        ByKernel& cell = made.cells[at];
        const bool is_first = cell.kernel == ByKernel::kNone || cell.kernel == part.owner;
        cell.kernel = is_first ? part.owner : ByKernel::kSeveral;
      }
    }
  }
  return made;
}

}  // namespace attn::pictures
