#include "compiler/engines/native/lister.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "compiler/engines/shared/unsupported.h"
#include "compiler/masks/blocks.h"
#include "runtime/base/ceil_div.h"

namespace attn::engines::native {
namespace {

using ir::Dim;
using masks::Block;
using masks::Range;

class Lister {
 public:
  Lister(const ir::Attention& attention, const masks::Axes& axes, const Listing& listing,
         const RunsOfTile& runs_of_tile)
      : attention_(attention),
        listing_(listing),
        runs_of_tile_(runs_of_tile),
        batches_(axes.batch ? attention.dims[Dim::B] : 1),
        heads_(axes.head ? attention.dims[Dim::Hq] / listing.heads : 1) {
    made_.axes = axes;
    made_.tiles = listing.tiles;
  }

  Result<KeyBlocks> run() && {
    if (made_.tiles * lists() > kMostEntries) return too_long();
    const target::Deadline::Phase phase(listing_.deadline, "listing blocks");
    for (std::int64_t list = 0; list < lists() && entries() <= kMostEntries; ++list) {
      add_list(list / heads_, list % heads_);
      // What a search finds when the time is over is less than there is.
      if (listing_.deadline != nullptr) ATTN_RETURN_IF_ERROR(listing_.deadline->check());
    }
    if (entries() > kMostEntries) return too_long();
    finish();
    return std::move(made_);
  }

 private:
  static constexpr int kHalvings = 12;  // of a cell that its ranges do not decide
  static constexpr std::int64_t kMostWork = masks::Effort::kMost / 4;  // operations
  static constexpr double kUneven = 1.3;  // times the mean: from here on, order matters

  std::int64_t lists() const { return batches_ * heads_; }
  std::int64_t entries() const {
    return static_cast<std::int64_t>(made_.lists.size() + made_.runs.size());
  }

  Error too_long() const {
    const auto [blocks, tiles] =
        listing_.by_keys ? std::pair("row", "keys") : std::pair("key", "rows");
    return unsupported(
        attention_.pos,
        fmt::format(
            "the lists of {} blocks have more than {} entries, which is what a kernel holds",
            blocks, kMostEntries),
        fmt::format("use fewer {0}, or masks that differ less between {0}, batches and heads",
                    tiles));
  }

  void add_list(std::int64_t b, std::int64_t h) {
    Stretches stretches = visible(b, h);
    for (std::int64_t t = 0; t < made_.tiles && entries() <= kMostEntries; ++t) {
      add_tile(t, runs_of_tile_(stretches, t));
    }
  }

  Stretches visible(std::int64_t b, std::int64_t h) const {
    masks::BlockSearch search{masks::whole_box(attention_), listing_.rows, listing_.columns};
    if (made_.axes.batch) search.box.batch = {b, b};
    if (made_.axes.head) search.box.head = {h * listing_.heads, (h + 1) * listing_.heads - 1};
    search.most = kMostWork / lists();
    search.halvings = kHalvings;
    search.tells_full = true;
    search.deadline = listing_.deadline;
    const std::int64_t count = listing_.by_keys
                                   ? ceil_div(attention_.dims[Dim::Skv], listing_.columns)
                                   : ceil_div(attention_.dims[Dim::Sq], listing_.rows);
    Stretches stretches(static_cast<std::size_t>(count));
    masks::find_blocks(
        attention_, attention_.masks, search,
        [&](const Range& rows, const Range& columns, Block block) {
          if (block == Block::empty) return;
          const Range& across = listing_.by_keys ? columns : rows;
          const Range& along = listing_.by_keys ? rows : columns;
          for (std::int64_t i = across.low; i <= across.high; ++i) {
            stretches[static_cast<std::size_t>(i)].push_back({along.low, along.high, block});
          }
        });
    return stretches;
  }

  void add_tile(std::int64_t tile, const std::vector<KeyRun>& runs) {
    TileList list{tile, place_of(runs), static_cast<std::int64_t>(runs.size())};
    for (const KeyRun& run : runs) {
      list.blocks += run.blocks;
      made_.masked |= run.masked;
    }
    made_.masked |= list.blocks < listing_.least;  // a block of nothing but hidden scores
    made_.lists.push_back(list);
  }

  // The place of the runs in KeyBlocks::runs, where they are added unless they can be shared.
  std::int64_t place_of(const std::vector<KeyRun>& runs) {
    auto& all = made_.runs;
    const auto end = static_cast<std::int64_t>(all.size());
    std::int64_t first = end;
    if (listing_.shares)
      first = known_.emplace(runs, end).first->second;
    else if (runs.size() <= all.size() && std::equal(runs.rbegin(), runs.rend(), all.rbegin()))
      first = end - static_cast<std::int64_t>(runs.size());
    if (first == end) all.insert(all.end(), runs.begin(), runs.end());
    return first;
  }

  void finish() {
    std::int64_t longest = 0;
    double all = 0;
    for (const TileList& list : made_.lists) {
      longest = std::max(longest, list.blocks);
      all += static_cast<double>(std::max(listing_.least, list.blocks));
    }
    made_.blocks = all * static_cast<double>(listing_.units) / static_cast<double>(lists());
    made_.sorted =
        static_cast<double>(longest) * static_cast<double>(made_.lists.size()) > kUneven * all;
    if (!made_.sorted || !listing_.sorts) return;
    for (auto begin = made_.lists.begin(); begin != made_.lists.end(); begin += made_.tiles) {
      std::stable_sort(begin, begin + made_.tiles,
                       [](const TileList& x, const TileList& y) { return x.blocks > y.blocks; });
    }
  }

  const ir::Attention& attention_;
  const Listing& listing_;
  const RunsOfTile& runs_of_tile_;
  const std::int64_t batches_, heads_;  // that lists tell apart
  KeyBlocks made_;
  std::map<std::vector<KeyRun>, std::int64_t> known_;
};

}  // namespace

Result<KeyBlocks> listed_blocks(const ir::Attention& attention, const masks::Axes& mask_axes,
                                const Listing& listing, const RunsOfTile& runs_of_tile) {
  return Lister(attention, mask_axes, listing, runs_of_tile).run();
}

}  // namespace attn::engines::native
