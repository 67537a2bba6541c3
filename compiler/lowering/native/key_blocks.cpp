#include "compiler/lowering/native/key_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "compiler/lowering/common/unsupported.h"
#include "compiler/lowering/native/patches.h"
#include "compiler/passes/analysis/blocks.h"
#include "runtime/base/ceil_div.h"

namespace attn::lowering::native {
namespace {

using ir::Dim;
using passes::Block;

constexpr int kHalvings = 12;  // of a cell that its ranges do not decide
constexpr std::int64_t kMostWork = passes::Effort::kMost / 4;
constexpr double kUneven = 1.3;  // times the mean: from here on, order matters

class Lister {
 public:
  Lister(const ir::Attention& attention, const passes::Axes& axes, const Tile& tile)
      : attention_(attention), tile_(tile), cell_(tile.patch ? kPatchWidth : tile.cell) {
    made_.axes = axes;
    made_.tiles = ceil_div(attention.dims[Dim::Sq], tile.rows_of_head());
  }

  Result<KeyBlocks> run() && {
    const std::int64_t batches = made_.axes.batch ? attention_.dims[Dim::B] : 1;
    const std::int64_t heads = made_.axes.head ? attention_.dims[Dim::Hq] : 1;
    if (made_.tiles * batches * heads > kMostEntries) return too_long();
    lists_ = batches * heads;
    for (std::int64_t b = 0; b < batches; ++b) {
      for (std::int64_t h = 0; h < heads; ++h) add_list(b, h);
    }
    if (entries() > kMostEntries) return too_long();
    finish();
    return std::move(made_);
  }

 private:
  std::int64_t entries() const {
    return static_cast<std::int64_t>(made_.lists.size() + made_.runs.size());
  }

  Error too_long() const {
    return unsupported(
        attention_.pos,
        fmt::format(
            "the lists of key blocks have more than {} entries, which is what a kernel holds",
            kMostEntries),
        "use fewer rows, or masks that differ less between rows, batches and heads");
  }

  void add_list(std::int64_t b, std::int64_t h) {
    std::vector<std::vector<Stretch>> stretches = visible(b, h);
    for (std::int64_t t = 0; t < made_.tiles && entries() <= kMostEntries; ++t) {
      if (tile_.patch) {
        add_tile(t, patches_of(cells_of_patch(stretches, t), tile_.patch->grid));
      } else {
        std::vector<Stretch>& of_tile = stretches[static_cast<std::size_t>(t)];
        add_tile(t, runs_of(joined(std::move(of_tile)), cells(), tile_));
      }
    }
  }
  std::int64_t cells() const { return ceil_div(attention_.dims[Dim::Skv], cell_); }

  // What all of its rows of the grid see together.
  std::vector<Block> cells_of_patch(const std::vector<std::vector<Stretch>>& stretches,
                                    std::int64_t tile) const {
    const std::int64_t rows = tile_.patch->height;
    const std::int64_t across = tile_.patch->grid / tile_.patch->width;
    const std::int64_t first = tile / across * rows * across + tile % across;
    std::vector<Block> cells(static_cast<std::size_t>(this->cells()));
    std::vector<std::int64_t> full(cells.size());  // rows
    for (std::int64_t row = 0; row < rows; ++row) {
      for (const Stretch& stretch : stretches[static_cast<std::size_t>(first + row * across)]) {
        for (auto i = static_cast<std::size_t>(stretch.first);
             i <= static_cast<std::size_t>(stretch.last); ++i) {
          full[i] += stretch.block == Block::full ? 1 : 0;
          cells[i] = full[i] == rows ? Block::full : Block::partial;
        }
      }
    }
    return cells;
  }

  // Of each row of cells, those that are not empty. Patches have rows of queries next to each other
  // and cells of keys next to each other in the grid.
  std::vector<std::vector<Stretch>> visible(std::int64_t b, std::int64_t h) const {
    const std::int64_t rows = tile_.patch ? tile_.patch->width : tile_.rows_of_head();
    passes::BlockSearch search{passes::whole_box(attention_), rows, cell_};
    if (made_.axes.batch) search.box.batch = {b, b};
    if (made_.axes.head) search.box.head = {h, h};
    const passes::MaskBoxes boxes(attention_, attention_.masks);
    search.most = kMostWork / std::max<std::int64_t>(1, boxes.operations() * lists_);
    search.halvings = kHalvings;
    search.tells_full = true;
    const std::int64_t height = ceil_div(attention_.dims[Dim::Sq], rows);
    std::vector<std::vector<Stretch>> stretches(static_cast<std::size_t>(height));
    passes::find_blocks(
        attention_, attention_.masks, search,
        [&](const passes::Range& down, const passes::Range& columns, Block block) {
          if (block == Block::empty) return;
          for (std::int64_t row = down.low; row <= down.high; ++row) {
            stretches[static_cast<std::size_t>(row)].push_back({columns.low, columns.high, block});
          }
        });
    return stretches;
  }

  // Tiles with the same runs share them.
  void add_tile(std::int64_t tile, const std::vector<KeyRun>& runs) {
    std::vector<std::tuple<std::int64_t, std::int64_t, bool>> key;
    TileList list{tile, static_cast<std::int64_t>(made_.runs.size()),
                  static_cast<std::int64_t>(runs.size())};
    for (const KeyRun& run : runs) {
      key.emplace_back(run.key, run.blocks, run.masked);
      list.blocks += run.blocks;
      made_.masked |= run.masked;
    }
    made_.masked |= runs.empty();  // the kernel computes a block of nothing but hidden scores
    const auto [found, is_new] = known_.emplace(std::move(key), list.first);
    list.first = found->second;
    if (is_new) made_.runs.insert(made_.runs.end(), runs.begin(), runs.end());
    made_.lists.push_back(list);
  }

  void finish() {
    // Lengths may leave a tile without blocks: it computes one, whose scores masks may hide.
    made_.masked |= attention_.lengths_kv && !attention_.masks.empty();
    std::int64_t longest = 0;
    double all = 0;
    for (const TileList& list : made_.lists) {
      longest = std::max(longest, list.blocks);
      all += static_cast<double>(std::max<std::int64_t>(1, list.blocks));
    }
    const auto units =
        static_cast<double>(attention_.dims[Dim::B] * attention_.dims[Dim::Hq] / tile_.pack);
    made_.blocks = all * units / static_cast<double>(lists_);
    made_.sorted =
        static_cast<double>(longest) * static_cast<double>(made_.lists.size()) > kUneven * all;
    if (!made_.sorted) return;
    for (auto begin = made_.lists.begin(); begin != made_.lists.end(); begin += made_.tiles) {
      std::stable_sort(begin, begin + made_.tiles,
                       [](const TileList& x, const TileList& y) { return x.blocks > y.blocks; });
    }
  }

  const ir::Attention& attention_;
  const Tile& tile_;
  const std::int64_t cell_;  // keys
  KeyBlocks made_;
  std::int64_t lists_ = 1;
  std::map<std::vector<std::tuple<std::int64_t, std::int64_t, bool>>, std::int64_t> known_;
};

}  // namespace

Result<KeyBlocks> key_blocks(const ir::Attention& attention, const passes::Axes& mask_axes,
                             const Tile& tile) {
  return Lister(attention, mask_axes, tile).run();
}

}  // namespace attn::lowering::native
