#include "compiler/lowering/native/key_runs.h"

#include <algorithm>

namespace attn::lowering::native {
namespace {

using passes::Block;

void append(std::vector<Stretch>& joined, const Stretch& next) {
  const bool adjacent =
      !joined.empty() && joined.back().block == next.block && joined.back().last + 1 == next.first;
  if (adjacent)
    joined.back().last = next.last;
  else
    joined.push_back(next);
}

void append(std::vector<KeyRun>& runs, const KeyRun& next, std::int64_t keys) {
  const bool adjacent = !runs.empty() && runs.back().masked == next.masked &&
                        runs.back().key + runs.back().blocks * keys == next.key;
  if (adjacent)
    runs.back().blocks += next.blocks;
  else
    runs.push_back(next);
}

// Whether these, the first of which has the first cell, are full up to the last cell.
bool is_full(std::span<const Stretch> stretches, std::int64_t first, std::int64_t last) {
  for (const Stretch& stretch : stretches) {
    if (stretch.first > first || stretch.block != Block::full) return false;
    if (stretch.last >= last) return true;
    first = stretch.last + 1;
  }
  return false;
}

}  // namespace

std::vector<Stretch> stretches_of(std::span<const Block> cells) {
  std::vector<Stretch> stretches;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto cell = static_cast<std::int64_t>(i);
    if (cells[i] != Block::empty) append(stretches, {cell, cell, cells[i]});
  }
  return stretches;
}

std::vector<Stretch> joined(std::vector<Stretch> stretches) {
  std::ranges::sort(stretches, {}, &Stretch::first);
  std::vector<Stretch> all;
  for (const Stretch& stretch : stretches) append(all, stretch);
  return all;
}

std::vector<KeyRun> runs_of(std::span<const Stretch> stretches, std::int64_t cells,
                            const Tile& tile) {
  const std::int64_t per_block = tile.keys / tile.cell;
  std::vector<KeyRun> runs;
  std::int64_t at = 0;  // cells before it are in blocks
  while (!stretches.empty()) {
    const Stretch& stretch = stretches.front();
    at = std::max(at, stretch.first);
    // Blocks within it; else one that reaches past its end.
    const std::int64_t within = (stretch.last - at + 1) / per_block;
    const std::int64_t blocks = std::max<std::int64_t>(1, within);
    const std::int64_t last = std::min(cells, at + per_block) - 1;
    const bool full = within > 0 ? stretch.block == Block::full : is_full(stretches, at, last);
    append(runs, {at * tile.cell, blocks, !full}, tile.keys);
    at += blocks * per_block;
    const auto left =
        std::ranges::find_if(stretches, [at](const Stretch& s) { return s.last >= at; });
    stretches = {left, stretches.end()};
  }
  return runs;
}

}  // namespace attn::lowering::native
