#include "compiler/sharding/work.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "compiler/ir/random_dropout.h"
#include "compiler/masks/axes.h"
#include "compiler/masks/blocks.h"
#include "compiler/masks_of_values/cells.h"

namespace attn::sharding {
namespace {

using ir::Dim;
using masks::Block;
using masks::Range;

constexpr std::int64_t kUnit = 128;
constexpr std::int64_t kMostBlocks = 2048;  // of rows or keys, unless ranks need more
constexpr std::int64_t kBlocksOfRank = 8;   // at least, where there are as many rows
constexpr std::int64_t kMostMaps = 64;      // batches times heads that are looked at one by one

masks::Axes axes_of_masks(const ir::Attention& attention) {
  masks::Dependence dependence(attention.dag);
  masks::Axes axes;
  for (const ir::ExprId mask : attention.masks) axes = axes | dependence[mask];
  return masks::varying(axes, attention.dims);
}

// Each index of the axis by itself if the masks depend on it, unless they are too many.
std::vector<Range> looked_at(bool varies, std::int64_t size, std::int64_t most) {
  if (!varies) return {{0, 0}};
  if (size > most) return {{0, size - 1}};
  std::vector<Range> all;
  for (std::int64_t i = 0; i < size; ++i) all.push_back({i, i});
  return all;
}

}  // namespace

double WorkMap::total() const { return std::accumulate(shares.begin(), shares.end(), 0.0); }

Blocks blocks_of(std::int64_t size, int ranks, std::int64_t together) {
  Blocks blocks{size, kUnit};
  const std::int64_t least =
      std::max<std::int64_t>(2 * ranks, std::min<std::int64_t>(kBlocksOfRank * ranks, kMostBlocks));
  const std::int64_t most = std::max<std::int64_t>(kMostBlocks, 2 * ranks);
  while (blocks.count() < least && blocks.unit > together) blocks.unit /= 2;
  if (blocks.count() < ranks && together > 1) return blocks_of(size, ranks, 1);
  while (blocks.count() > most) blocks.unit *= 2;
  return blocks;
}

WorkMap work_map(const ir::Attention& attention, int ranks, const masks::KnownInputs* known) {
  const ir::Attention masked = masks_of_values::with_lengths_as_masks(attention);
  const ir::Dims& dims = attention.dims;
  const std::int64_t together = attention.is_random() ? ir::kDrawnKeys : 1;
  WorkMap map{
      blocks_of(dims[Dim::Sq], ranks, together), blocks_of(dims[Dim::Skv], ranks, together), {}};
  map.draws = attention.is_random();
  map.shares.assign(static_cast<std::size_t>(map.rows.count() * map.keys.count()), 0);
  const masks::Axes axes = axes_of_masks(masked);
  const std::vector<Range> heads = looked_at(axes.head, dims[Dim::Hq], kMostMaps);
  const std::vector<Range> batches =
      looked_at(axes.batch, dims[Dim::B], kMostMaps / static_cast<std::int64_t>(heads.size()));
  const auto maps = static_cast<std::int64_t>(heads.size() * batches.size());
  const float share = 1.0F / static_cast<float>(maps);
  masks::BlockSearch search{masks::whole_box(masked), map.rows.unit, map.keys.unit};
  search.most = masks::Effort::kMost / maps;
  search.halvings = 128;
  search.known = known;
  for (const Range& batch : batches) {
    for (const Range& head : heads) {
      search.box.batch = batch, search.box.head = head;
      const auto sink = [&](const Range& rows, const Range& keys, Block block) {
        if (block == Block::empty) return;
        for (std::int64_t row = rows.low; row <= rows.high; ++row) {
          for (std::int64_t key = keys.low; key <= keys.high; ++key)
            map.shares[static_cast<std::size_t>(row * map.keys.count() + key)] += share;
        }
      };
      map.exactness =
          std::max(map.exactness, masks::find_blocks(masked, masked.masks, search, sink));
    }
  }
  return map;
}

}  // namespace attn::sharding
