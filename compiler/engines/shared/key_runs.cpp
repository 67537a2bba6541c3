#include "compiler/engines/shared/key_runs.h"

#include <algorithm>

namespace attn::engines {
namespace {

using masks::Block;

void append(std::vector<CellRun>& joined, const CellRun& next) {
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
bool is_full(std::span<const CellRun> stretches, std::int64_t first, std::int64_t last) {
  for (const CellRun& stretch : stretches) {
    if (stretch.first > first || stretch.block != Block::full) return false;
    if (stretch.last >= last) return true;
    first = stretch.last + 1;
  }
  return false;
}

}  // namespace

std::vector<CellRun> stretches_of(std::span<const Block> cells) {
  std::vector<CellRun> stretches;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto cell = static_cast<std::int64_t>(i);
    if (cells[i] != Block::empty) append(stretches, {cell, cell, cells[i]});
  }
  return stretches;
}

std::vector<CellRun> joined(std::vector<CellRun> stretches) {
  std::ranges::sort(stretches, {}, &CellRun::first);
  std::vector<CellRun> all;
  for (const CellRun& stretch : stretches) append(all, stretch);
  return all;
}

std::vector<KeyRun> runs_of(std::span<const CellRun> stretches, std::int64_t cells,
                            std::int64_t keys, std::int64_t cell) {
  const std::int64_t per_block = keys / cell;
  std::vector<KeyRun> runs;
  std::int64_t at = 0;  // cells before it are in blocks
  while (!stretches.empty()) {
    const CellRun& stretch = stretches.front();
    at = std::max(at, stretch.first);
    // Blocks within it; else one that reaches past its end.
    const std::int64_t within = (stretch.last - at + 1) / per_block;
    const std::int64_t blocks = std::max<std::int64_t>(1, within);
    const std::int64_t last = std::min(cells, at + per_block) - 1;
    const bool full = within > 0 ? stretch.block == Block::full : is_full(stretches, at, last);
    append(runs, {at * cell, blocks, !full}, keys);
    at += blocks * per_block;
    const auto left =
        std::ranges::find_if(stretches, [at](const CellRun& s) { return s.last >= at; });
    stretches = {left, stretches.end()};
  }
  return runs;
}

}  // namespace attn::engines
