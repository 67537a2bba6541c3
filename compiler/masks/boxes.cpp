#include "compiler/masks/boxes.h"

#include <algorithm>
#include <queue>
#include <vector>

namespace attn::masks {
namespace {

using ir::ExprId;

std::int64_t length(const Range& range) { return range.high - range.low + 1; }
std::int64_t scores(const Box& box) { return length(box.row) * length(box.column); }

std::pair<Box, Box> halves(const Box& box) {
  return halves(box, length(box.row) > length(box.column) ? &Box::row : &Box::column);
}

std::int64_t to_the_right(const Box& box) { return box.column.high - box.row.low; }
std::int64_t to_the_left(const Box& box) { return box.row.high - box.column.low; }

struct Candidate {
  OpenBox open;
  std::int64_t distance = 0;
  std::int64_t scores = 0;

  // Orders by distance, the furthest first; ties by size, the smallest first.
  bool operator<(const Candidate& other) const {
    return distance != other.distance ? distance < other.distance : scores > other.scores;
  }
};

std::vector<ExprId> joined(std::span<const ExprId> x, std::span<const ExprId> y) {
  std::vector<ExprId> all(x.begin(), x.end());
  all.insert(all.end(), y.begin(), y.end());
  return all;
}

// The cost of starting a search.
std::int64_t dag_size(const ir::Attention& attention) {
  return static_cast<std::int64_t>(attention.dag.size());
}

bool is_empty(const ir::Attention& attention) {
  return attention.dims[ir::Dim::Sq] == 0 || attention.dims[ir::Dim::Skv] == 0;
}

}  // namespace

std::pair<Box, Box> halves(const Box& box, Range Box::*axis) {
  std::pair<Box, Box> parts(box, box);
  const Range& whole = box.*axis;
  const std::int64_t middle = whole.low + (whole.high - whole.low) / 2;
  (parts.first.*axis).high = middle;
  (parts.second.*axis).low = middle + 1;
  return parts;
}

MaskBoxes::MaskBoxes(const ir::Attention& attention, std::span<const ExprId> hold,
                     std::span<const ExprId> fail, const KnownInputs* known)
    : roots_(joined(hold, fail)), ranges_(attention, roots_, known) {
  const std::size_t size = roots_.empty() ? 0 : *std::ranges::max_element(roots_) + 1;
  holds_.resize(size);
  fails_.resize(size);
  for (const ExprId mask : hold) holds_[mask] = true;
  for (const ExprId mask : fail) fails_[mask] = true;
}

Block MaskBoxes::of(const Box& box, const Unsettled& within) {
  ranges_.look_at(box, within);
  Block block = within->has_undecided_root ? Block::partial : Block::full;
  for (const ExprId mask : within->roots) {
    const Range range = ranges_[mask];
    const bool is_true = range.is_true(), is_false = range.is_false();
    if ((is_false && holds_[mask]) || (is_true && fails_[mask])) return Block::empty;
    if (!is_true && !is_false) block = Block::partial;
  }
  return block;
}

bool never(const ir::Attention& attention, std::span<const ExprId> hold,
           std::span<const ExprId> fail, Effort& effort) {
  if (is_empty(attention)) return true;
  if (!effort.spend(dag_size(attention))) return false;
  MaskBoxes boxes(attention, hold, fail);
  std::vector<OpenBox> open = {{whole_box(attention), boxes.all()}};
  for (int looked = 0; !open.empty(); ++looked) {
    const auto [box, within] = open.back();
    if (looked == kMostProofBoxes || !effort.spend(within->cost())) return false;
    open.pop_back();
    const Block block = boxes.of(box, within);
    if (block == Block::empty) continue;
    if (block == Block::full || scores(box) == 1 || boxes.is_settled()) return false;
    const auto [first, second] = halves(box);
    const Unsettled left = boxes.unsettled();
    open.push_back({first, left});
    open.push_back({second, left});
  }
  return true;
}

std::optional<std::int64_t> furthest(const ir::Attention& attention, Distance distance,
                                     Effort& effort) {
  if (is_empty(attention)) return std::nullopt;
  if (!effort.spend(dag_size(attention))) return distance(whole_box(attention));
  MaskBoxes boxes(attention, attention.masks);
  const auto candidate = [&](const Box& box, const Unsettled& within) {
    return Candidate{{box, within}, distance(box), scores(box)};
  };
  std::priority_queue<Candidate> queue;
  queue.push(candidate(whole_box(attention), boxes.all()));
  for (int looked = 0; !queue.empty(); ++looked) {
    const Candidate next = queue.top();
    queue.pop();
    const auto& [box, within] = next.open;
    if (looked == kMostSearchedBoxes || !effort.spend(within->cost())) return next.distance;
    const Block block = boxes.of(box, within);
    if (block == Block::empty) continue;
    if (next.scores == 1 || block == Block::full || boxes.is_settled()) return next.distance;
    const auto [first, second] = halves(box);
    const Unsettled left = boxes.unsettled();
    queue.push(candidate(first, left));
    queue.push(candidate(second, left));
  }
  return std::nullopt;
}

Band cover_of(const ir::Attention& attention, Effort& effort) {
  Band cover;
  const ir::Dims& dims = attention.dims;
  if (!dims.bound() || attention.masks.empty()) return cover;
  const auto right = furthest(attention, to_the_right, effort);
  const auto left = furthest(attention, to_the_left, effort);
  if (right && *right < dims[ir::Dim::Skv] - 1) cover.right = right;
  if (left && *left < dims[ir::Dim::Sq] - 1) cover.left = left;
  return cover;
}

std::optional<Bounds> bounds_of(const ir::Attention& attention, Effort& effort) {
  const auto found = [&](Distance distance) { return furthest(attention, distance, effort); };
  const auto last_row = found([](const Box& box) { return box.row.high; });
  if (!last_row) return std::nullopt;
  const auto first_row = found([](const Box& box) { return -box.row.low; });
  const auto last_column = found([](const Box& box) { return box.column.high; });
  const auto first_column = found([](const Box& box) { return -box.column.low; });
  if (!first_row || !last_column || !first_column) return std::nullopt;
  // A search that ends early gives a bound that need not be reached. Two of them may leave nothing
  // in between.
  if (-*first_row > *last_row || -*first_column > *last_column) return std::nullopt;
  return Bounds{{-*first_row, *last_row}, {-*first_column, *last_column}};
}

}  // namespace attn::masks
