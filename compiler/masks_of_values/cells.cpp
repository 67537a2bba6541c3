#include "compiler/masks_of_values/cells.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "compiler/masks_of_values/known_values.h"
#include "compiler/reference/row_evaluator.h"

namespace attn::masks_of_values {
namespace {

using ir::Dim;
using ir::ExprId;
using masks::Block;
using masks::Box;

// Operations of the search for blocks and of the count of their scores, each about half a second.
constexpr std::int64_t kMostOperations = std::int64_t{1} << 25;

double scores_in(const Box& box) {
  return static_cast<double>(box.row.high - box.row.low + 1) *
         static_cast<double>(box.column.high - box.column.low + 1);
}

ExprId below_length(ir::Attention& attention, ir::Op index, std::string_view lengths) {
  ir::Dag& dag = attention.dag;
  const ExprId batch[] = {dag.leaf(ir::Op::batch_)};
  const ExprId length =
      dag.add_symbol(ir::Op::load_, std::string(lengths), ir::Type::integer, batch);
  return dag.add(ir::Op::lt_, {dag.leaf(index), length});
}

Box box_at(const ir::Attention& attention, const Place& place) {
  Box box = masks::whole_box(attention);
  box.batch = {place.batch, place.batch};
  box.head = {place.head, place.head};
  return box;
}

// Whether a score is visible. A mask without a value is not an error if another mask hides it.
Result<bool> is_visible(const reference::RowEvaluator& row, std::span<const ExprId> masks,
                        std::size_t column) {
  std::optional<ExprId> fault;
  for (const ExprId mask : masks) {
    const reference::Cell& cell = row.cells(mask)[column];
    if (!cell.fault && cell.value == 0) return false;
    if (!fault) fault = cell.fault;
  }
  if (fault) return row.describe(*fault, column);
  return true;
}

// Evaluates single scores, as the reference does.
class ScoreEvaluator {
 public:
  ScoreEvaluator(const ir::Attention& attention, const reference::Bindings& values)
      : masks_(attention.masks), row_(attention, values, masks_) {}

  // Errors: as of scores_at.
  Result<bool> is_visible(const Box& score) {
    const double unknown[] = {0};
    row_.run({score.batch.low, score.head.low, score.row.low, score.column.low}, unknown);
    return masks_of_values::is_visible(row_, masks_, 0);
  }

 private:
  std::vector<ExprId> masks_;
  reference::RowEvaluator row_;
};

std::pair<Box, Box> halved(const Box& box) {
  const bool by_rows = box.row.high - box.row.low >= box.column.high - box.column.low;
  return masks::halves(box, by_rows ? &Box::row : &Box::column);
}

// Counts the visible scores of boxes by halving them until they are decided.
class Counter {
 public:
  Counter(const ir::Attention& attention, const reference::Bindings& values,
          const KnownValues& known, std::int64_t operations)
      : boxes_(attention, attention.masks, &known),
        scores_(attention, values),
        score_(static_cast<std::int64_t>(boxes_.all()->steps.size())),
        left_(operations) {}

  // nullopt if it takes too long. A score that has no value counts half.
  std::optional<double> count(const Box& box) {
    double visible = 0;
    open_.assign(1, {box, boxes_.all()});
    while (!open_.empty()) {
      const auto [next, within] = open_.back();
      open_.pop_back();
      left_ -= within->cost();
      if (left_ < 0) return std::nullopt;
      const Block block = boxes_.of(next, within);
      if (block == Block::full) visible += scores_in(next);
      if (block != Block::partial) continue;
      if (masks::is_single(next)) {
        visible += share_of_score(next);
        continue;
      }
      const auto [first, second] = halved(next);
      const masks::Unsettled left = boxes_.unsettled();
      open_.push_back({first, left});
      open_.push_back({second, left});
    }
    return visible;
  }
  // The place of the first visible score without a value.
  const std::optional<Error>& fault() const { return fault_; }

 private:
  // A score that intervals do not decide.
  double share_of_score(const Box& score) {
    left_ -= score_;
    const Result<bool> visible = scores_.is_visible(score);
    if (visible.ok()) return *visible ? 1 : 0;
    if (!fault_) fault_ = visible.error();
    return 0.5;
  }

  masks::MaskBoxes boxes_;
  ScoreEvaluator scores_;
  std::int64_t score_;  // operations that one score takes
  std::int64_t left_;   // operations
  std::optional<Error> fault_;
  std::vector<masks::OpenBox> open_;
};

// What is known of inputs, and whether an index was asked for that a tensor does not have.
class Watched : public masks::KnownInputs {
 public:
  Watched(const reference::Bindings& values, const KnownValues& known)
      : values_(values), known_(known) {}

  std::optional<masks::Range> elements(std::string_view tensor,
                                       std::span<const masks::Range> indexes) const override {
    const auto found = values_.tensors.find(tensor);
    for (std::size_t axis = 0; axis < indexes.size() && found != values_.tensors.end(); ++axis) {
      const bool is_inside =
          indexes[axis].low >= 0 && indexes[axis].high < found->second.dims[axis];
      is_outside_ = is_outside_ || !is_inside;
    }
    return known_.elements(tensor, indexes);
  }
  std::optional<masks::Range> param(std::string_view name) const override {
    return known_.param(name);
  }
  bool take_outside() const { return std::exchange(is_outside_, false); }

 private:
  const reference::Bindings& values_;
  const KnownValues& known_;
  mutable bool is_outside_ = false;
};

// Looks for a visible score that reads outside a tensor. The analysis of masks assumes that no
// score does. At most `operations` are spent on it. Errors: those of scores_at at the first such
// score.
Status check_indexes(const ir::Attention& attention, const reference::Bindings& values,
                     const KnownValues& known, const Box& whole, std::int64_t operations) {
  const Watched watched(values, known);
  masks::MaskBoxes boxes(attention, attention.masks, &watched);
  ScoreEvaluator scores(attention, values);
  std::vector<Box> open = {whole};
  for (; !open.empty() && operations > 0; operations -= boxes.all()->cost()) {
    const Box box = open.back();
    open.pop_back();
    const bool is_hidden = boxes.of(box) == Block::empty;
    if (!watched.take_outside() || is_hidden) continue;
    if (masks::is_single(box)) {
      ATTN_RETURN_IF_ERROR(scores.is_visible(box));
      continue;
    }
    const auto [first, second] = halved(box);
    open.push_back(first);
    open.push_back(second);
  }
  return {};
}

Box scores_of(const masks::BlockMap& map, std::size_t block, const Box& whole) {
  const auto row = static_cast<std::int64_t>(block) / map.width;
  const auto column = static_cast<std::int64_t>(block) % map.width;
  Box box = whole;
  box.row = {row * map.rows, std::min(whole.row.high, (row + 1) * map.rows - 1)};
  box.column = {column * map.columns, std::min(whole.column.high, (column + 1) * map.columns - 1)};
  return box;
}

// The order in which partial blocks are counted, so that any of them are like all.
std::vector<std::size_t> spread(std::vector<std::size_t> blocks) {
  std::vector<std::size_t> order;
  for (std::size_t step = 64; step > 0; step /= 2) {
    for (std::size_t i = 0; i < blocks.size(); i += step) {
      if (step == 64 || i % (2 * step) != 0) order.push_back(blocks[i]);
    }
  }
  return order;
}

Share share_of(const masks::BlockMap& map, const Box& whole, Counter& counter) {
  Share share;
  share.all = scores_in(whole);
  std::vector<std::size_t> partial;
  double undecided = 0;
  for (std::size_t i = 0; i < map.blocks.size(); ++i) {
    if (map.blocks[i] == Block::empty) continue;
    const double scores = scores_in(scores_of(map, i, whole));
    if (map.blocks[i] == Block::full) share.visible += scores;
    if (map.blocks[i] != Block::partial) continue;
    partial.push_back(i);
    undecided += scores;
  }
  double counted = 0, visible = 0;
  for (const std::size_t block : spread(std::move(partial))) {
    const Box box = scores_of(map, block, whole);
    const auto found = counter.count(box);
    if (!found) break;
    counted += scores_in(box);
    visible += *found;
  }
  share.exact = counted == undecided;
  if (counted < undecided) visible = undecided * (counted > 0 ? visible / counted : 0.5);
  share.visible += visible;
  return share;
}

}  // namespace

ir::Attention with_lengths_as_masks(ir::Attention attention) {
  if (attention.lengths_q) {
    attention.masks.push_back(below_length(attention, ir::Op::row_, ir::kLengthsQ));
  }
  if (attention.lengths_kv) {
    attention.masks.push_back(below_length(attention, ir::Op::column_, ir::kLengthsKv));
  }
  return attention;
}

Result<Cells> scores_at(const ir::Attention& attention, const reference::Bindings& values,
                        const Place& place) {
  const ir::Attention masked = with_lengths_as_masks(attention);
  const std::int64_t rows = masked.dims[Dim::Sq], columns = masked.dims[Dim::Skv];
  reference::RowEvaluator evaluator(masked, values, masked.masks);
  const std::vector<double> scores(static_cast<std::size_t>(columns));
  Cells cells{{1, 1, rows, columns, {}}, {}};
  for (std::int64_t row = 0; row < rows; ++row) {
    evaluator.run({place.batch, place.head, row}, scores);
    for (std::size_t column = 0; column < scores.size(); ++column) {
      ATTN_ASSIGN(const bool visible, is_visible(evaluator, masked.masks, column));
      cells.map.blocks.push_back(visible ? Block::full : Block::empty);
    }
  }
  cells.share = {static_cast<double>(cells.map.count(Block::full)),
                 static_cast<double>(cells.map.blocks.size())};
  return cells;
}

masks::BlockMap block_map_at(const ir::Attention& attention, const masks::KnownInputs& known,
                             const Place& place, std::int64_t rows, std::int64_t columns,
                             std::int64_t places) {
  masks::BlockSearch search{box_at(attention, place), rows, columns};
  search.known = &known;
  return masks::block_map(attention, search, kMostOperations / places);
}

Result<Cells> blocks_at(const ir::Attention& attention, const reference::Bindings& values,
                        const Place& place, std::int64_t rows, std::int64_t columns,
                        std::int64_t places) {
  const ir::Attention masked = with_lengths_as_masks(attention);
  const KnownValues known(values);
  const Box whole = box_at(masked, place);
  ATTN_RETURN_IF_ERROR(check_indexes(masked, values, known, whole, kMostOperations / 4 / places));
  Cells cells{block_map_at(masked, known, place, rows, columns, places), {}};
  Counter counter(masked, values, known, kMostOperations / places);
  cells.share = share_of(cells.map, whole, counter);
  if (counter.fault()) return *counter.fault();
  return cells;
}

CountVisible count_visible_at(const ir::Attention& attention, const reference::Bindings& values,
                              const Place& place, std::int64_t places) {
  struct Counted {
    Counted(const ir::Attention& attention, const reference::Bindings& values,
            std::int64_t operations)
        : masked(with_lengths_as_masks(attention)),
          known(values),
          counter(masked, values, known, operations) {}

    ir::Attention masked;
    KnownValues known;
    Counter counter;
  };
  const auto counted = std::make_shared<Counted>(attention, values, kMostOperations / places);
  return [counted, whole = box_at(counted->masked, place)](const ranks::Interval& rows,
                                                           const ranks::Interval& columns) {
    Box box = whole;
    box.row = {rows.begin, rows.end - 1};
    box.column = {columns.begin, columns.end - 1};
    return counted->counter.count(box).value_or(scores_in(box));
  };
}

Result<std::vector<double>> changes_at(const ir::Attention& attention,
                                       const reference::Bindings& values, const Place& place,
                                       double before) {
  const ir::Attention masked = with_lengths_as_masks(attention);
  std::vector<ExprId> roots = masked.masks;
  roots.push_back(masked.score);
  reference::RowEvaluator evaluator(masked, values, roots);
  const std::vector<double> scores(static_cast<std::size_t>(masked.dims[Dim::Skv]), before);
  std::vector<double> changes;
  for (std::int64_t row = 0; row < masked.dims[Dim::Sq]; ++row) {
    evaluator.run({place.batch, place.head, row}, scores);
    for (std::size_t column = 0; column < scores.size(); ++column) {
      ATTN_ASSIGN(const bool visible, is_visible(evaluator, masked.masks, column));
      const reference::Cell& after = evaluator.cells(masked.score)[column];
      if (visible && after.fault) return evaluator.describe(*after.fault, column);
      changes.push_back(visible ? after.value - before : std::numeric_limits<double>::quiet_NaN());
    }
  }
  return changes;
}

}  // namespace attn::masks_of_values
