#include "compiler/engines/native/row_blocks.h"

#include <optional>
#include <utility>

#include "compiler/engines/native/lister.h"
#include "runtime/base/ceil_div.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

// Divides the runs of a list's tiles, one after the other, so that each has one KeyRun::before.
class Ordering {
 public:
  Ordering(std::int64_t cells, std::int64_t rows)
      : rows_(rows), last_(static_cast<std::size_t>(cells), -1) {}

  std::vector<KeyRun> divided(const std::vector<KeyRun>& runs, std::int64_t tile) {
    std::vector<KeyRun> all;
    for (const KeyRun& run : runs) {
      for (std::int64_t i = 0; i < run.blocks; ++i) {
        const std::int64_t row = run.key + i * rows_;
        std::int64_t& last = last_[static_cast<std::size_t>(row / rows_)];
        const std::int64_t before = last < 0 ? 0 : tile - last;
        last = tile;
        if (i == 0 || all.back().before != before) all.push_back({row, 0, run.masked, before});
        ++all.back().blocks;
      }
    }
    return all;
  }

 private:
  const std::int64_t rows_;         // of a block
  std::vector<std::int64_t> last_;  // tile that sees a block of rows; -1: none yet
};

}  // namespace

std::int64_t past_all_rows(const ir::Dims& dims) { return ceil_div(dims[Dim::Sq], kCell) * kCell; }

Result<KeyBlocks> row_blocks(const ir::Attention& attention, const masks::Axes& mask_axes,
                             const RowTile& tile, bool ordered, target::Deadline* deadline) {
  const ir::Dims& dims = attention.dims;
  Tile as_keys;  // whose keys are the rows of a block: runs of rows are found like those of keys
  as_keys.keys = tile.rows;
  if (ordered) as_keys.cell = tile.rows;
  const std::int64_t cells = as_keys.cells_of(dims[Dim::Sq]);
  const Listing listing{.tiles = ceil_div(dims[Dim::Skv], tile.keys),
                        .rows = as_keys.cell,
                        .columns = tile.keys,
                        .by_keys = true,
                        .heads = dims[Dim::Hq] / dims[Dim::Hkv],
                        .units = dims[Dim::B] * dims[Dim::Hq],
                        .shares = false,
                        .sorts = !ordered,
                        .deadline = deadline};
  std::optional<Ordering> ordering;
  return listed_blocks(attention, mask_axes, listing, [&](Stretches& stretches, std::int64_t t) {
    auto runs = runs_of(joined(std::move(stretches[static_cast<std::size_t>(t)])), cells,
                        as_keys.keys, as_keys.cell);
    if (!ordered) return runs;
    if (t == 0) ordering.emplace(cells, tile.rows);
    return ordering->divided(runs, t);
  });
}

}  // namespace attn::engines::native
