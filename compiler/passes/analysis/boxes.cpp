#include "compiler/passes/analysis/boxes.h"

#include <algorithm>
#include <queue>
#include <vector>

namespace attn::passes {
namespace {

using ir::ExprId;

std::int64_t length(const Range& range) { return range.high - range.low + 1; }
std::int64_t scores(const Box& box) { return length(box.row) * length(box.column); }

std::pair<Box, Box> halves(const Box& box) {
  std::pair<Box, Box> parts(box, box);
  const bool by_rows = length(box.row) > length(box.column);
  const Range& whole = by_rows ? box.row : box.column;
  const std::int64_t middle = whole.low + length(whole) / 2;
  (by_rows ? parts.first.row : parts.first.column).high = middle - 1;
  (by_rows ? parts.second.row : parts.second.column).low = middle;
  return parts;
}

struct Candidate {
  Box box;
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

bool never(const ir::Attention& attention, std::span<const ExprId> hold,
           std::span<const ExprId> fail, Effort& effort) {
  if (is_empty(attention)) return true;
  if (!effort.spend(dag_size(attention))) return false;
  Ranges ranges(attention, joined(hold, fail));
  const auto is_false = [&](ExprId id) { return ranges[id].is_false(); };
  const auto is_true = [&](ExprId id) { return ranges[id].is_true(); };
  std::vector<Box> open = {whole_box(attention)};
  for (int looked = 0; !open.empty(); ++looked) {
    if (looked == kMostProofBoxes || !effort.spend(ranges.operations())) return false;
    const Box box = open.back();
    open.pop_back();
    ranges.look_at(box);
    if (std::ranges::any_of(hold, is_false) || std::ranges::any_of(fail, is_true)) continue;
    const bool is_found = std::ranges::all_of(hold, is_true) && std::ranges::all_of(fail, is_false);
    if (is_found || scores(box) == 1) return false;
    const auto [first, second] = halves(box);
    open.push_back(first);
    open.push_back(second);
  }
  return true;
}

std::optional<std::int64_t> furthest(const ir::Attention& attention, Distance distance,
                                     Effort& effort) {
  if (is_empty(attention)) return std::nullopt;
  if (!effort.spend(dag_size(attention))) return distance(whole_box(attention));
  Ranges ranges(attention, attention.masks);
  const auto hidden = [&](ExprId mask) { return ranges[mask].is_false(); };
  const auto shown = [&](ExprId mask) { return ranges[mask].is_true(); };
  const auto candidate = [&](const Box& box) { return Candidate{box, distance(box), scores(box)}; };
  std::priority_queue<Candidate> queue;
  queue.push(candidate(whole_box(attention)));
  for (int looked = 0; !queue.empty(); ++looked) {
    const Candidate next = queue.top();
    queue.pop();
    if (looked == kMostSearchedBoxes || !effort.spend(ranges.operations())) return next.distance;
    ranges.look_at(next.box);
    if (std::ranges::any_of(attention.masks, hidden)) continue;
    if (next.scores == 1 || std::ranges::all_of(attention.masks, shown)) return next.distance;
    const auto [first, second] = halves(next.box);
    queue.push(candidate(first));
    queue.push(candidate(second));
  }
  return std::nullopt;
}

std::optional<Bounds> bounds_of(const ir::Attention& attention, Effort& effort) {
  const auto found = [&](Distance distance) { return furthest(attention, distance, effort); };
  const auto last_row = found([](const Box& box) { return box.row.high; });
  if (!last_row) return std::nullopt;
  const auto first_row = found([](const Box& box) { return -box.row.low; });
  const auto last_column = found([](const Box& box) { return box.column.high; });
  const auto first_column = found([](const Box& box) { return -box.column.low; });
  return Bounds{{-*first_row, *last_row}, {-*first_column, *last_column}};
}

}  // namespace attn::passes
