#include "compiler/engines/native/row_division.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>

#include "runtime/base/ceil_div.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

constexpr std::int64_t kMostShares = 4;    // of a block of threads' work: how many parts it has
constexpr std::int64_t kSharesOfMade = 2;  // the same of lists that the GPU makes
constexpr std::int64_t kLeast = 4;  // steps of a part of a known list: two parts have two each
constexpr std::int64_t kLeastOfMade = 32;  // of others
constexpr double kGain = 0.95;             // at least, for more parts
// What the beginning and the end of an item take, and sums of parts, in steps of 64 rows.
constexpr double kStepsOfItem = 4, kStepsOfPart = 8;

std::int64_t heads_of_key(const ir::Dims& dims) { return dims[Dim::Hq] / dims[Dim::Hkv]; }
std::int64_t units_of(const ir::Dims& dims) { return dims[Dim::B] * dims[Dim::Hkv]; }

class Dividing {
 public:
  Dividing(const ir::Dims& dims, const KeyBlocks& blocks, double multiprocessors, bool ordered)
      : dims_(dims), blocks_(blocks), multiprocessors_(multiprocessors), ordered_(ordered) {}

  RowDivision run() {
    RowDivision best = undivided();
    const double share = blocks_.blocks / multiprocessors_;
    // Others fill what the last items leave, or there is nothing to fill.
    if (best.longest <= (1 - kGain) * share) return best;
    double time = time_of(best);
    for (std::int64_t shares = 1; shares <= kMostShares; ++shares) {
      const auto steps = static_cast<std::int64_t>(std::ceil(share / static_cast<double>(shares)));
      RowDivision next = with(std::max(steps, kLeast));
      if (next.parts.empty()) continue;
      const double less = time_of(next);
      if (less >= kGain * time) continue;
      best = std::move(next);
      time = less;
    }
    return best;
  }

 private:
  const TileList& list(std::int64_t tile) const {
    return blocks_.lists[static_cast<std::size_t>(tile)];
  }
  std::int64_t steps_of(std::int64_t tile) const { return list(tile).blocks * heads_of_key(dims_); }
  std::int64_t first_tile(std::int64_t unit) const {
    const std::int64_t heads = blocks_.axes.head ? dims_[Dim::Hkv] : 1;
    const std::int64_t batch = blocks_.axes.batch ? unit / dims_[Dim::Hkv] : 0;
    return (batch * heads + (blocks_.axes.head ? unit % dims_[Dim::Hkv] : 0)) * blocks_.tiles;
  }

  RowDivision undivided() const {
    RowDivision none;
    for (const TileList& each : blocks_.lists) none.most = std::max(none.most, each.blocks);
    none.longest = static_cast<double>(none.most * heads_of_key(dims_));
    return none;
  }

  // The division into parts of so many steps, at most.
  RowDivision with(std::int64_t steps) const {
    RowDivision made;
    made.most = steps / heads_of_key(dims_);
    bool any = false;
    made.all = true;
    for (const TileList& each : blocks_.lists) {
      const bool divided = each.blocks > made.most;
      any |= divided, made.all &= divided;
      const std::int64_t parts = divided ? ceil_div(each.blocks * heads_of_key(dims_), steps) : 1;
      const auto of_part = static_cast<double>(ceil_div(each.blocks * heads_of_key(dims_), parts));
      made.longest = std::max(made.longest, of_part);
    }
    if (!any) return undivided();
    std::int64_t whole = 0;  // items so far that are not divided
    for_each_block([&](std::int64_t unit, std::int64_t tile) {
      if (list(tile).blocks <= made.most) {
        ++whole;
        return;
      }
      const auto first = static_cast<std::int64_t>(made.parts.size());
      if (ordered_ && !made.all) made.in_order.push_back({whole + first, first});
      const std::int64_t parts = ceil_div(steps_of(tile), steps);
      for (std::int64_t part = 0; part < parts; ++part) {
        made.parts.push_back({unit, tile, part, parts});
      }
    });
    return made;
  }

  // Calls `visit(unit, tile)`, if sums are ordered in the order in which blocks of keys are taken.
  template <typename Visit>
  void for_each_block(Visit visit) const {
    const std::int64_t units = units_of(dims_), together = ordered_ ? kUnitsOfOrder : 1;
    for (std::int64_t first = 0; first < units; first += together) {
      for (std::int64_t i = 0; i < blocks_.tiles; ++i) {
        for (std::int64_t unit = first; unit < std::min(units, first + together); ++unit) {
          visit(unit, first_tile(unit) + i);
        }
      }
    }
  }

  // Time in steps, of blocks of threads that take items in turns.
  double time_of(const RowDivision& division) const {
    std::priority_queue<double, std::vector<double>, std::greater<>> ends;
    for (double i = 0; i < multiprocessors_; ++i) ends.push(0);
    double last = 0;
    const auto take = [&](double steps) {
      const double end = ends.top() + steps;
      ends.pop();
      ends.push(end);
      last = std::max(last, end);
    };
    const auto take_part = [&](const RowPart& part) {
      take(static_cast<double>(steps_of(part.tile)) / static_cast<double>(part.parts) +
           kStepsOfPart);
    };
    const auto take_whole = [&](std::int64_t tile) {
      take(static_cast<double>(steps_of(tile)) + kStepsOfItem);
    };
    if (!division.in_order.empty()) {
      auto next = division.parts.begin();
      for_each_block([&](std::int64_t, std::int64_t tile) {
        if (list(tile).blocks <= division.most) return take_whole(tile);
        for (std::int64_t i = next->parts; i > 0; --i) take_part(*next++);
      });
      return last;
    }
    std::ranges::for_each(division.parts, take_part);
    for (std::int64_t i = 0; i < blocks_.tiles; ++i) {
      for (std::int64_t unit = 0; unit < units_of(dims_); ++unit) {
        const std::int64_t tile = first_tile(unit) + i;
        if (list(tile).blocks <= division.most) take_whole(tile);
      }
    }
    return last;
  }

  const ir::Dims& dims_;
  const KeyBlocks& blocks_;
  const double multiprocessors_;
  const bool ordered_;
};

}  // namespace

RowDivision row_division(const ir::Dims& dims, const KeyBlocks& blocks, double multiprocessors,
                         bool ordered) {
  return Dividing(dims, blocks, multiprocessors, ordered).run();
}

KeyBlocks with_equal_tiles(KeyBlocks blocks) {
  std::int64_t longest = 0, all = 0;
  for (const TileList& each : blocks.lists) {
    longest = std::max(longest, each.blocks), all += each.blocks;
  }
  if (all > 0)
    blocks.blocks *= static_cast<double>(longest * blocks.tiles) / static_cast<double>(all);
  blocks.lists.clear();
  for (std::int64_t i = 0; i < blocks.tiles; ++i)
    blocks.lists.push_back({.tile = i, .blocks = longest});
  return blocks;
}

MadeDivision made_division(const ir::Dims& dims, const KeyBlocks& blocks, double multiprocessors) {
  std::int64_t longest = 0;
  for (const TileList& each : blocks.lists) longest = std::max(longest, each.blocks);
  if (longest * heads_of_key(dims) <= kLeastOfMade) return {};
  MadeDivision made{.shares = kSharesOfMade * static_cast<std::int64_t>(multiprocessors),
                    .least_steps = kLeastOfMade};
  // More steps than a part has are less than two of its parts each.
  const auto of_least = static_cast<std::int64_t>(2 * blocks.blocks / kLeastOfMade);
  made.most_parts = std::min(2 * made.shares, of_least);
  return made;
}

}  // namespace attn::engines::native
