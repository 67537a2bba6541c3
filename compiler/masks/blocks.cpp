#include "compiler/masks/blocks.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "runtime/base/ceil_div.h"

namespace attn::masks {
namespace {

constexpr int kToScores = 128;  // halvings, enough for blocks of any size
constexpr int kTurn = 1024;     // parts of a block looked at in one turn

bool is_single(const Range& range) { return range.low == range.high; }

class Halving {
 public:
  Halving(const ir::Attention& attention, std::span<const ir::ExprId> masks,
          const BlockSearch& search, const BlockSink& sink)
      : dims_(attention.dims),
        boxes_(attention, masks, search.known),
        search_(search),
        sink_(sink),
        watch_(search.deadline) {}

  Exactness run() {
    rectangles_.push_back({{0, ceil_div(dims_[ir::Dim::Sq], search_.rows) - 1},
                           {0, ceil_div(dims_[ir::Dim::Skv], search_.columns) - 1},
                           boxes_.all()});
    for (; !rectangles_.empty(); rectangles_.pop_front()) look(rectangles_.front());
    for (; !undecided_.empty(); undecided_.pop_front()) take_turn(undecided_.front());
    return exactness_;
  }

 private:
  struct Rectangle {
    Range rows, columns;  // of blocks
    Unsettled within;
  };

  struct Part {
    OpenBox open;
    int halvings = 0;  // left
  };

  // A block that is undecided as a whole.
  struct Undecided {
    Rectangle block;
    std::vector<Part> parts{};     // to look at, the next one last; none before the first turn
    std::optional<Block> known{};  // what all decided parts are
  };

  void look(const Rectangle& rectangle) {
    const auto& [rows, columns, within] = rectangle;
    if (is_over()) return sink_(rows, columns, Block::partial);
    const Block block = looked_at({scores_of(rectangle), within});
    if (block != Block::partial) return sink_(rows, columns, block);
    if (boxes_.is_settled()) {
      exactness_ = std::max(exactness_, Exactness::bound);
      return sink_(rows, columns, Block::partial);
    }
    if (is_single(rows) && is_single(columns)) {
      undecided_.push_back({{rows, columns, boxes_.unsettled()}});
    } else {
      const bool by_rows = rows.high - rows.low >= columns.high - columns.low;
      halve(rectangle, by_rows ? &Rectangle::rows : &Rectangle::columns);
    }
  }

  void halve(Rectangle half, Range Rectangle::*axis) {
    const Range whole = half.*axis;
    const std::int64_t middle = (whole.low + whole.high) / 2;
    half.within = boxes_.unsettled();
    half.*axis = {whole.low, middle};
    rectangles_.push_back(half);
    half.*axis = {middle + 1, whole.high};
    rectangles_.push_back(half);
  }

  void take_turn(Undecided& undecided) {
    const auto& [rows, columns, within] = undecided.block;
    if (undecided.parts.empty()) {
      undecided.parts.push_back({{scores_of(undecided.block), within}, search_.halvings});
    }
    for (int i = 0; i < kTurn; ++i) {
      const std::optional<Block> block = look_at_part(undecided);
      if (block) return sink_(rows, columns, *block);
    }
    undecided_.push_back(std::move(undecided));
  }

  // Returns the block if its next part decides it.
  std::optional<Block> look_at_part(Undecided& undecided) {
    if (is_over()) return Block::partial;
    const Part part = undecided.parts.back();
    undecided.parts.pop_back();
    const Block found = looked_at(part.open);
    if (found == Block::partial) return halve(part, undecided.parts);
    const bool is_mixed = undecided.known.value_or(found) != found;
    if (is_mixed || (found == Block::full && !search_.tells_full)) return Block::partial;
    undecided.known = found;
    return undecided.parts.empty() ? undecided.known : std::nullopt;
  }

  // Returns the block if the part cannot be halved.
  std::optional<Block> halve(const Part& part, std::vector<Part>& parts) {
    const auto& [open, halvings] = part;
    const Box& box = open.box;
    const bool is_row = is_single(box.row), is_column = is_single(box.column);
    if (halvings == 0 || (is_row && is_column) || boxes_.is_settled()) {
      exactness_ = std::max(exactness_, Exactness::bound);
      return Block::partial;
    }
    const bool by_rows = is_column || (halvings % 2 == 0 && !is_row);
    const auto [first, second] = halves(box, by_rows ? &Box::row : &Box::column);
    const Unsettled left = boxes_.unsettled();
    parts.push_back({{second, left}, halvings - 1});
    parts.push_back({{first, left}, halvings - 1});
    return std::nullopt;
  }

  Box scores_of(const Rectangle& rectangle) const {
    const auto scores = [](const Range& blocks, std::int64_t block, std::int64_t size) {
      return Range{blocks.low * block, std::min(size, (blocks.high + 1) * block) - 1};
    };
    Box box = search_.box;
    box.row = scores(rectangle.rows, search_.rows, dims_[ir::Dim::Sq]);
    box.column = scores(rectangle.columns, search_.columns, dims_[ir::Dim::Skv]);
    return box;
  }

  Block looked_at(const OpenBox& open) {
    const std::int64_t cost = open.within->cost();
    spent_ = watch_.is_over(cost) ? search_.most : spent_ + cost;
    return boxes_.of(open.box, open.within);
  }

  bool is_over() {
    if (spent_ < search_.most) return false;
    exactness_ = Exactness::stopped;
    return true;
  }

  const ir::Dims& dims_;
  MaskBoxes boxes_;
  const BlockSearch& search_;
  const BlockSink& sink_;
  std::deque<Rectangle> rectangles_;
  std::deque<Undecided> undecided_;
  Watch watch_;
  std::int64_t spent_ = 0;  // operations
  Exactness exactness_ = Exactness::exact;
};

// Adds up what rows see, in rectangles of scores that do not overlap.
class RowSums {
 public:
  explicit RowSums(const ir::Attention& attention) : rows_(attention.dims[ir::Dim::Sq]) {
    changes_[0];
  }

  void add(const Range& rows, const Range& columns, Block block) {
    if (block == Block::empty) return;
    const std::int64_t possible = columns.high - columns.low + 1;
    const std::int64_t seen = block == Block::full ? possible : 0;
    Sum& first = changes_[rows.low];
    first = {first.seen + seen, first.possible + possible};
    Sum& behind = changes_[rows.high + 1];
    behind = {behind.seen - seen, behind.possible - possible};
  }

  RowCounts counts(Exactness exactness) const {
    RowCounts counts{INT64_MAX, 0, exactness};
    Sum row;
    for (const auto& [first, change] : changes_) {
      if (first == rows_) break;
      row = {row.seen + change.seen, row.possible + change.possible};
      counts.fewest = std::min(counts.fewest, row.seen);
      counts.most = std::max(counts.most, row.possible);
    }
    return counts;
  }

 private:
  struct Sum {
    std::int64_t seen = 0, possible = 0;
  };

  std::int64_t rows_;
  std::map<std::int64_t, Sum> changes_;  // from a row on, against the row before
};

}  // namespace

std::int64_t BlockMap::count(Block block) const { return std::ranges::count(blocks, block); }

Exactness find_blocks(const ir::Attention& attention, std::span<const ir::ExprId> masks,
                      const BlockSearch& search, const BlockSink& sink) {
  return Halving(attention, masks, search, sink).run();
}

BlockMap block_map(const ir::Attention& attention, BlockSearch search, std::int64_t operations) {
  BlockMap map{search.rows,
               search.columns,
               ceil_div(attention.dims[ir::Dim::Sq], search.rows),
               ceil_div(attention.dims[ir::Dim::Skv], search.columns),
               {}};
  map.blocks.resize(static_cast<std::size_t>(map.height * map.width));
  search.most = operations;
  search.halvings = kToScores;
  search.tells_full = true;
  map.exactness = find_blocks(attention, attention.masks, search,
                              [&](const Range& down, const Range& across, Block block) {
                                for (std::int64_t row = down.low; row <= down.high; ++row) {
                                  const auto begin = map.blocks.begin() + row * map.width;
                                  std::fill(begin + across.low, begin + across.high + 1, block);
                                }
                              });
  return map;
}

BlockMap block_map(const ir::Attention& attention, std::int64_t rows, std::int64_t columns,
                   std::int64_t operations, const target::Deadline* deadline) {
  BlockSearch search{whole_box(attention), rows, columns};
  search.deadline = deadline;
  search.box.batch = search.box.head = {0, 0};
  return block_map(attention, search, operations);
}

RowCounts row_counts(const ir::Attention& attention, const target::Deadline* deadline,
                     std::int64_t operations) {
  BlockSearch search{whole_box(attention), 1, 1, operations};
  search.deadline = deadline;
  search.box.batch = search.box.head = {0, 0};
  RowSums sums(attention);
  const Exactness exactness = find_blocks(attention, attention.masks, search,
                                          [&](const Range& rows, const Range& columns,
                                              Block block) { sums.add(rows, columns, block); });
  return sums.counts(exactness);
}

}  // namespace attn::masks
