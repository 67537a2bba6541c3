#include "compiler/engines/shared/block_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/engines/shared/cost.h"
#include "compiler/masks/affine.h"
#include "compiler/masks/floor_div.h"
#include "compiler/rewrite/hoist.h"
#include "compiler/rewrite/rebuild.h"

namespace attn::engines {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Node;
using ir::Op;

constexpr std::int64_t kSizes[] = {128, kSmallestBlock};  // of tiles and pages
constexpr std::int64_t kKernelRows = 128;                 // smaller tiles take as long
constexpr double kKernelColumns = 128;
constexpr std::int64_t kMostOperations = masks::Effort::kMost / 8;  // for one size of blocks
constexpr std::int64_t kMostLists = 128;  // batches and heads analyzed one by one
constexpr int kHalvings = 4;              // of a block that is undecided as a whole
constexpr double kOperation = 0.04;       // per score, relative to its dot products
constexpr double kSlowdown = 1.22;        // against a kernel with contiguous reads

constexpr int kSmallKernels = 4;   // that build the lists and vectors of their columns
constexpr double kLook = 0.35e-9;  // ms to decide one score, about ten instructions

bool reads_input(const ir::Dag& dag, ExprId id) {
  const ExprId roots[] = {id};
  return std::ranges::any_of(ir::reachable(dag, roots), [&](ExprId each) {
    return dag[each].is(Op::load_) || dag[each].is(Op::param_);
  });
}

// Whether an expression is the same for all rows of a tile, and for all columns of a page.
class OnBlocks {
 public:
  struct Same {
    bool rows = true, columns = true;
    bool both() const { return rows && columns; }
  };

  OnBlocks(const ir::Attention& attention, std::int64_t tile, std::int64_t page)
      : attention_(attention), tile_(tile), page_(page) {}

  Same operator[](ExprId id) const {
    const ExprId roots[] = {id};
    std::vector<Same> same(id + 1);
    for (const ExprId each : ir::reachable(attention_.dag, roots)) {
      const Node& node = attention_.dag[each];
      Same& of = same[each];
      if (node.is(Op::row_)) of.rows = false;
      if (node.is(Op::column_)) of.columns = false;
      for (const ExprId operand : node.operands) {
        of.rows &= same[operand].rows;
        of.columns &= same[operand].columns;
      }
      if (node.is(Op::floordiv_) && is_of_blocks(node)) of = {};
    }
    return same[id];
  }

 private:
  // Whether `node` is an affine index // a constant with the same value in all of a block.
  bool is_of_blocks(const Node& node) const {
    if (node.type != ir::Type::integer || !attention_.dag[node.operands[1]].is(Op::const_int_)) {
      return false;
    }
    const std::int64_t by = attention_.dag.integer_of(node.operands[1]);
    const std::optional<masks::Affine> x = masks::affine_of(attention_, node.operands[0]);
    if (by < 1 || !x || (x->row != 0) == (x->column != 0) || x->length_q != 0 ||
        x->length_kv != 0) {
      return false;
    }
    const std::int64_t factor = x->row + x->column, size = x->row != 0 ? tile_ : page_;
    const std::int64_t step = std::abs(factor) * size;
    const std::int64_t first = x->constant - masks::floor_div(x->constant, step) * step;
    const std::int64_t last = first + factor * (size - 1);
    return by % step == 0 && last >= 0 && last < step;
  }

  const ir::Attention& attention_;
  std::int64_t tile_, page_;
};

// Most pages of a tile, and pages of all tiles of a batch and head on average.
struct Count {
  std::int64_t longest = 0;
  double listed = 0;
};

// One box for each batch and head that the masks depend on; one for all if there are too many.
std::vector<masks::Box> boxes_of(const ir::Attention& attention, const std::vector<ExprId>& masks) {
  masks::Dependence dependence(attention.dag);
  masks::Axes axes;
  for (const ExprId mask : masks) axes = axes | masks::varying(dependence[mask], attention.dims);
  const masks::Box whole = masks::whole_box(attention);
  const std::int64_t batches = axes.batch ? whole.batch.high + 1 : 1;
  const std::int64_t heads = axes.head ? whole.head.high + 1 : 1;
  if (batches * heads > kMostLists) return {whole};
  std::vector<masks::Box> boxes;
  for (std::int64_t i = 0; i < batches * heads; ++i) {
    masks::Box box = whole;
    if (axes.batch) box.batch = {i / heads, i / heads};
    if (axes.head) box.head = {i % heads, i % heads};
    boxes.push_back(box);
  }
  return boxes;
}

// Counts by indices alone: tensors and params may hold anything.
Count count(const ir::Attention& attention, const std::vector<ExprId>& masks, std::int64_t tile,
            std::int64_t page, const target::Deadline* deadline) {
  Count count;
  const std::vector<masks::Box> boxes = boxes_of(attention, masks);
  const std::int64_t most = kMostOperations / static_cast<std::int64_t>(boxes.size());
  for (const masks::Box& box : boxes) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(attention.dims[Dim::Sq] / tile));
    masks::find_blocks(
        attention, masks, {box, tile, page, most, kHalvings, false, nullptr, deadline},
        [&](const masks::Range& tiles, const masks::Range& pages, masks::Block block) {
          if (block == masks::Block::empty) return;
          for (std::int64_t t = tiles.low; t <= tiles.high; ++t) {
            counts[static_cast<std::size_t>(t)] += pages.high - pages.low + 1;
          }
        });
    for (const std::int64_t pages : counts) {
      count.longest = std::max(count.longest, pages);
      count.listed += static_cast<double>(pages);
    }
  }
  count.listed /= static_cast<double>(boxes.size());
  return count;
}

// The attention with captured booleans of a row or a column taken to be false.
ir::Attention without_flags(const ir::Attention& attention) {
  masks::Dependence dependence(attention.dag);
  return rewrite::rebuilt(
      attention,
      [&](rewrite::SimplifyingBuilder&, ir::Dag& dag, ExprId id,
          const std::vector<ExprId>&) -> std::optional<ExprId> {
        const Node& node = attention.dag[id];
        const masks::Axes axes = dependence[id];
        const bool flag =
            node.is(Op::load_) && node.type == ir::Type::boolean && axes.row != axes.column;
        return flag ? std::optional(dag.boolean(false, node.pos)) : std::nullopt;
      });
}

class BlockListFinder {
 public:
  // `axes`: those that the masks depend on.
  BlockListFinder(const ir::Attention& attention, const masks::Axes& axes,
                  const target::Deadline* deadline)
      : attention_(attention),
        axes_(axes),
        deadline_(deadline),
        without_flags_(without_flags(attention)),
        dag_(attention.dag),
        dependence_(attention.dag) {
    for (const ExprId mask : attention.masks) {
      (reads_input(dag_, mask) ? unknown_ : known_).push_back(mask);
    }
    for (const ExprId mask : without_flags_.masks) {
      if (!reads_input(without_flags_.dag, mask)) known_without_flags_.push_back(mask);
    }
  }

  std::optional<BlockLists> run() {
    std::optional<BlockLists> best;
    double least = 0;
    for (const std::int64_t tile : kSizes) {
      for (const std::int64_t page : kSizes) {
        const std::optional<BlockLists> lists = of(tile, page);
        if (!lists) continue;
        const double work = work_of(*lists);
        if (best && work >= least) continue;
        best = lists;
        least = work;
      }
    }
    return best;
  }

 private:
  std::optional<BlockLists> of(std::int64_t tile, std::int64_t page) {
    const ir::Dims& d = attention_.dims;
    if (d[Dim::Sq] % tile != 0 || d[Dim::Skv] % page != 0 || d[Dim::Skv] <= page) return {};
    BlockLists lists{.tile = tile, .page = page, .axes = {}, .residual = {}};
    lists.tiles = d[Dim::Sq] / tile;
    lists.pages = d[Dim::Skv] / page;
    const Count seen = count(attention_, known_, tile, page, deadline_);
    lists.longest = std::max<std::int64_t>(seen.longest, 1);
    lists.listed = seen.listed;
    const auto all = static_cast<double>(lists.tiles * lists.pages);
    if (unknown_.empty() && lists.listed == all) return {};
    describe(lists);
    return lists;
  }

  void describe(BlockLists& lists) {
    const OnBlocks on_blocks(attention_, lists.tile, lists.page);
    lists.axes = {.batch = axes_.batch, .head = axes_.head};
    lists.once = unknown_.empty();
    lists.same_rows = lists.same_columns = true;
    for (const ExprId mask : attention_.masks) {
      const OnBlocks::Same same = on_blocks[mask];
      lists.same_rows &= same.rows;
      lists.same_columns &= same.columns;
      if (!same.both()) lists.residual.push_back(mask);
      const bool tells = reads_input(dag_, mask) && (same.both() || is_equality(mask));
      lists.assumed |= tells;
    }
    if (lists.assumed) lists.listed *= kAssumedShare;
    if (!lists.assumed && known_without_flags_.size() > known_.size()) assume_few_flags(lists);
  }

  void assume_few_flags(BlockLists& lists) const {
    const Count few =
        count(without_flags_, known_without_flags_, lists.tile, lists.page, deadline_);
    lists.listed = few.listed + kAssumedShare * (lists.listed - few.listed);
    lists.assumed = true;
  }

  // T[.., row] == T[.., column]
  bool is_equality(ExprId mask) {
    const Node& node = dag_[mask];
    if (!node.is(Op::eq_)) return false;
    const Node &x = dag_[node.operands[0]], &y = dag_[node.operands[1]];
    if (!x.is(Op::load_) || !y.is(Op::load_) || x.attribute != y.attribute) return false;
    const masks::Axes a = dependence_[node.operands[0]], b = dependence_[node.operands[1]];
    return a.row != a.column && b.row != b.column && a.row == b.column;
  }

  // Work in units of the dot products of one score. Operands that depend on one side are read from
  // vectors.
  double work_of(const BlockLists& lists) {
    double operations = 0;
    std::set<ExprId> vectors;
    for (const ExprId id : ir::reachable(dag_, lists.residual)) {
      if (!dependence_[id].both_sides()) continue;
      const double computed = rewrite::cost_for_each_score(dag_[id]);
      operations += dag_[id].is(Op::load_)
                        ? rewrite::kReadingForward.table
                        : std::min(computed, rewrite::kReadingForward.narrow_table);
      for (const ExprId operand : dag_[id].operands) {
        const masks::Axes axes = dependence_[operand];
        const bool is_new = axes.row != axes.column && vectors.insert(operand).second;
        if (is_new)
          operations += axes.row ? rewrite::kReadingForward.row : rewrite::kReadingForward.column;
      }
    }
    const auto rows = static_cast<double>(std::max(lists.tile, kKernelRows));
    return lists.listed * rows * static_cast<double>(lists.page) * (1 + kOperation * operations);
  }

  const ir::Attention& attention_;
  masks::Axes axes_;
  const target::Deadline* deadline_;
  const ir::Attention without_flags_;
  const ir::Dag& dag_;
  masks::Dependence dependence_;
  std::vector<ExprId> known_, unknown_, known_without_flags_;
};

}  // namespace

const std::optional<BlockLists>& block_lists(const masks::MaskAnalysis& mask) {
  using Found = std::optional<BlockLists>;
  return mask.kept<Found>("block_lists", [](const masks::MaskAnalysis& each) -> Found {
    if (each.attention().masks.empty()) return std::nullopt;
    return BlockListFinder(each.attention(), each.axes(), each.deadline()).run();
  });
}

double predicted_ms(const BlockLists& lists, const ir::Attention& tiles,
                    const target::Context& context) {
  const ir::Dims& d = tiles.dims;
  const auto entries = static_cast<double>(d[Dim::B] * d[Dim::Hq]);
  const auto count = static_cast<double>(lists.tiles);
  const double width = static_cast<double>(lists.page) / kKernelColumns;
  const double most = lists.assumed ? lists.listed / count : static_cast<double>(lists.longest);
  const TileWork work{entries / count * lists.listed * width, most * width, entries};
  return kSlowdown * predicted_ms_of_tiles(tiles, work, context);
}

double predicted_ms_of_making(const BlockLists& lists, const ir::Dims& dims,
                              const target::Gpu& gpu) {
  if (lists.once) return 0;
  const std::int64_t of_lists =
      (lists.axes.batch ? dims[Dim::B] : 1) * (lists.axes.head ? dims[Dim::Hq] : 1);
  const std::int64_t rows = lists.same_rows ? lists.tiles : dims[Dim::Sq];
  const std::int64_t columns = lists.same_columns ? lists.pages : dims[Dim::Skv];
  return kSmallKernels * predicted_ms_of_moving(0, gpu) + static_cast<double>(of_lists * rows) *
                                                              static_cast<double>(columns) * kLook *
                                                              scalar_slowdown(gpu);
}

std::string to_text(const BlockLists& lists) {
  const auto all = static_cast<double>(lists.tiles * lists.pages);
  return fmt::format("tiles of {} rows see up to {} of {} pages of {} columns, {:.0f} % of all{}",
                     lists.tile, lists.longest, lists.pages, lists.page, 100 * lists.listed / all,
                     lists.assumed ? " (assumed)" : "");
}

}  // namespace attn::engines
