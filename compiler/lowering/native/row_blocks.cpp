#include "compiler/lowering/native/row_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compiler/lowering/common/unsupported.h"
#include "compiler/passes/analysis/blocks.h"
#include "runtime/base/ceil_div.h"

namespace attn::lowering::native {
namespace {

using ir::Dim;
using passes::Block;

class RowLister {
 public:
  RowLister(const ir::Attention& attention, const passes::Axes& axes, const RowTile& tile,
            bool ordered)
      : attention_(attention),
        dims_(attention.dims),
        group_(dims_[Dim::Hq] / dims_[Dim::Hkv]),
        keys_(tile.keys),
        ordered_(ordered) {
    as_keys_.keys = tile.rows;
    if (ordered) as_keys_.cell = tile.rows;
    made_.axes = axes;
    made_.tiles = ceil_div(dims_[Dim::Skv], keys_);
  }

  Result<KeyBlocks> run() && {
    const std::int64_t batches = made_.axes.batch ? dims_[Dim::B] : 1;
    const std::int64_t heads = made_.axes.head ? dims_[Dim::Hkv] : 1;
    lists_ = batches * heads;
    if (made_.tiles * lists_ > kMostEntries) return too_long();
    for (std::int64_t b = 0; b < batches; ++b) {
      for (std::int64_t h = 0; h < heads; ++h) add_list(b, h);
    }
    if (entries() > kMostEntries) return too_long();
    finish();
    return std::move(made_);
  }

 private:
  static constexpr int kHalvings = 12;  // of a cell that its ranges do not decide
  static constexpr std::int64_t kMostWork = passes::Effort::kMost / 4;
  static constexpr double kUneven = 1.3;  // times the mean: from here on, order matters

  std::int64_t entries() const {
    return static_cast<std::int64_t>(made_.lists.size() + made_.runs.size());
  }

  Error too_long() const {
    return unsupported(
        attention_.pos,
        fmt::format(
            "the lists of row blocks have more than {} entries, which is what a kernel holds",
            kMostEntries),
        "use fewer keys, or masks that differ less between keys, batches and heads");
  }

  void add_list(std::int64_t b, std::int64_t h) {
    std::vector<std::vector<Stretch>> stretches = visible(b, h);
    const std::int64_t cells = as_keys_.cells_of(dims_[Dim::Sq]);
    std::vector<std::int64_t> last(static_cast<std::size_t>(cells), -1);
    for (std::int64_t t = 0; t < made_.tiles && entries() <= kMostEntries; ++t) {
      std::vector<Stretch>& of_tile = stretches[static_cast<std::size_t>(t)];
      const std::vector<KeyRun> runs = runs_of(joined(std::move(of_tile)), cells, as_keys_);
      add_tile(t, ordered_ ? ordered(runs, t, last) : runs);
    }
  }

  // The same blocks, in runs that have one KeyRun::before each. `last`: of each block of rows, the
  // last tile that sees it.
  std::vector<KeyRun> ordered(const std::vector<KeyRun>& runs, std::int64_t tile,
                              std::vector<std::int64_t>& last) const {
    std::vector<KeyRun> divided;
    for (const KeyRun& run : runs) {
      for (std::int64_t i = 0; i < run.blocks; ++i) {
        const std::int64_t row = run.key + i * as_keys_.keys;
        auto& last_tile = last[static_cast<std::size_t>(row / as_keys_.keys)];
        const std::int64_t before = last_tile < 0 ? 0 : tile - last_tile;
        last_tile = tile;
        if (i == 0 || divided.back().before != before) {
          divided.push_back({row, 0, run.masked, before});
        }
        ++divided.back().blocks;
      }
    }
    return divided;
  }

  // Of each block of keys, the cells of rows that are not empty.
  std::vector<std::vector<Stretch>> visible(std::int64_t b, std::int64_t h) const {
    passes::BlockSearch search{passes::whole_box(attention_), as_keys_.cell, keys_};
    if (made_.axes.batch) search.box.batch = {b, b};
    if (made_.axes.head) search.box.head = {h * group_, (h + 1) * group_ - 1};
    const passes::MaskBoxes boxes(attention_, attention_.masks);
    search.most = kMostWork / std::max<std::int64_t>(1, boxes.operations() * lists_);
    search.halvings = kHalvings;
    search.tells_full = true;
    std::vector<std::vector<Stretch>> stretches(static_cast<std::size_t>(made_.tiles));
    passes::find_blocks(
        attention_, attention_.masks, search,
        [&](const passes::Range& rows, const passes::Range& columns, Block block) {
          if (block == Block::empty) return;
          for (std::int64_t c = columns.low; c <= columns.high; ++c) {
            stretches[static_cast<std::size_t>(c)].push_back({rows.low, rows.high, block});
          }
        });
    return stretches;
  }

  // Blocks of keys with the same runs share them, if they are those of the block before.
  void add_tile(std::int64_t tile, const std::vector<KeyRun>& runs) {
    TileList list{.tile = tile, .runs = static_cast<std::int64_t>(runs.size())};
    for (const KeyRun& run : runs) {
      list.blocks += run.blocks;
      made_.masked |= run.masked;
    }
    const auto before =
        made_.runs.end() - std::min(list.runs, static_cast<std::int64_t>(made_.runs.size()));
    if (!std::equal(before, made_.runs.end(), runs.begin(), runs.end())) {
      made_.runs.insert(made_.runs.end(), runs.begin(), runs.end());
    }
    list.first = static_cast<std::int64_t>(made_.runs.size()) - list.runs;
    made_.lists.push_back(list);
  }

  void finish() {
    std::int64_t longest = 0;
    double all = 0;
    for (const TileList& list : made_.lists) {
      longest = std::max(longest, list.blocks);
      all += static_cast<double>(list.blocks);
    }
    made_.blocks =
        all * static_cast<double>(dims_[Dim::B] * dims_[Dim::Hq]) / static_cast<double>(lists_);
    made_.sorted =
        static_cast<double>(longest) * static_cast<double>(made_.lists.size()) > kUneven * all;
    if (!made_.sorted || ordered_) return;
    for (auto begin = made_.lists.begin(); begin != made_.lists.end(); begin += made_.tiles) {
      std::stable_sort(begin, begin + made_.tiles,
                       [](const TileList& x, const TileList& y) { return x.blocks > y.blocks; });
    }
  }

  const ir::Attention& attention_;
  const ir::Dims& dims_;
  const std::int64_t group_;
  const std::int64_t keys_;  // of a block
  const bool ordered_;
  Tile as_keys_{};  // whose keys are the rows of a block: runs of rows are found like those of keys
  KeyBlocks made_;
  std::int64_t lists_ = 1;
};

}  // namespace

std::int64_t past_all_rows(const ir::Dims& dims) { return ceil_div(dims[Dim::Sq], kCell) * kCell; }

Result<KeyBlocks> row_blocks(const ir::Attention& attention, const passes::Axes& mask_axes,
                             const RowTile& tile, bool ordered) {
  return RowLister(attention, mask_axes, tile, ordered).run();
}

}  // namespace attn::lowering::native
