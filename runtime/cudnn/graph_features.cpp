#include "runtime/cudnn/graph_features.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/operands.h"

namespace attn::cudnn {
namespace {

using graph::BackendGraph;
using graph::Pointwise;
using graph::PointwiseMode;
using graph::Uid;

// Calls `visit` for every node of a kind.
template <typename Kind, typename Visit>
void for_each(const BackendGraph& graph, const Visit& visit) {
  for (const graph::Node& node : graph.nodes) {
    if (const auto* found = std::get_if<Kind>(&node)) visit(*found);
  }
}

bool is_shift(PointwiseMode mode) {
  return mode == PointwiseMode::add || mode == PointwiseMode::sub;
}

bool is_scalar(const BackendGraph& graph, Uid uid) {
  return graph.find(uid)->storage == graph::Storage::host_scalar;
}

// The per-batch sizes of products.
std::set<Uid> lengths_of(const BackendGraph& graph) {
  std::set<Uid> lengths;
  for_each<graph::Matmul>(graph, [&](const graph::Matmul& matmul) {
    for (const auto& size : {matmul.m, matmul.n, matmul.k}) {
      if (size) lengths.insert(*size);
    }
  });
  return lengths;
}

// Index tensors, and those shifted by a scalar or by lengths.
std::set<Uid> moved_indices(const BackendGraph& graph, const std::set<Uid>& lengths) {
  std::set<Uid> indices;
  for_each<Pointwise>(graph, [&](const Pointwise& node) {
    const bool moved = is_shift(node.mode) && indices.contains(node.x) &&
                       (is_scalar(graph, *node.b) || lengths.contains(*node.b));
    if (node.mode == PointwiseMode::gen_index || moved) indices.insert(node.y);
  });
  return indices;
}

// A band comparison of row and column: cmp_ge for a right bound, cmp_gt for a left one.
bool compares_indices(const Pointwise& node, PointwiseMode mode, const std::set<Uid>& indices) {
  return node.mode == mode && indices.contains(node.x) && indices.contains(*node.b);
}

bool has_band(const BackendGraph& graph, graph::BandSide side) {
  const PointwiseMode mode =
      side == graph::BandSide::right ? PointwiseMode::cmp_ge : PointwiseMode::cmp_gt;
  const std::set<Uid> indices = moved_indices(graph, lengths_of(graph));
  bool found = false;
  for_each<Pointwise>(
      graph, [&](const Pointwise& node) { found |= compares_indices(node, mode, indices); });
  for_each<graph::BandMask>(graph,
                            [&](const graph::BandMask& mask) { found |= mask.side == side; });
  return found;
}

// Rows and columns of the scores, from the result of the first product.
std::int64_t rows_of(const BackendGraph& graph) {
  if (const auto* sdpa = graph::sdpa_of(graph)) return graph.find(sdpa->q)->dims[2];
  std::int64_t rows = 0;
  for_each<graph::Matmul>(graph, [&](const graph::Matmul& scores) {
    if (rows == 0) rows = graph.find(scores.c)->dims[2];
  });
  return rows;
}

std::int64_t columns_of(const BackendGraph& graph) {
  if (const auto* sdpa = graph::sdpa_of(graph)) {
    const std::int64_t pages = sdpa->table_k ? graph.find(*sdpa->table_k)->dims[2] : 1;
    return graph.find(sdpa->k)->dims[2] * pages;
  }
  std::int64_t columns = 0;
  for_each<graph::Matmul>(graph, [&](const graph::Matmul& scores) {
    if (columns == 0) columns = graph.find(scores.c)->dims[3];
  });
  return columns;
}

// Page sizes of all paged tensors.
std::set<std::int64_t> page_sizes(const BackendGraph& graph) {
  std::set<std::int64_t> sizes;
  const auto add = [&](Uid pool) { sizes.insert(graph.find(pool)->dims[2]); };
  for_each<graph::PagedLoad>(graph, [&](const graph::PagedLoad& load) { add(load.container); });
  if (const auto* sdpa = graph::sdpa_of(graph)) {
    if (sdpa->table_k) add(sdpa->k);
    if (sdpa->table_v) add(sdpa->v);
  }
  return sizes;
}

bool one_row(const BackendGraph& graph) { return rows_of(graph) == 1; }

bool over_1024_columns(const BackendGraph& graph) { return columns_of(graph) > 1024; }

bool free_index(const BackendGraph& graph) {
  const std::set<Uid> lengths = lengths_of(graph);
  const std::set<Uid> indices = moved_indices(graph, lengths);
  bool outside = false;
  for_each<Pointwise>(graph, [&](const Pointwise& node) {
    const bool reads = node.mode != PointwiseMode::gen_index &&
                       (indices.contains(node.x) || (node.b && indices.contains(*node.b)));
    const bool is_zero = node.mode == PointwiseMode::sub && node.b == node.x;
    if (!reads || is_zero || indices.contains(node.y)) return;
    const bool band = compares_indices(node, PointwiseMode::cmp_ge, indices) ||
                      compares_indices(node, PointwiseMode::cmp_gt, indices);
    const bool padding = node.mode == PointwiseMode::cmp_lt && lengths.contains(*node.b);
    outside |= !band && !padding;
  });
  return outside;
}

constexpr std::int64_t kRows = 2, kColumns = 3;  // axes of scores

// What is computed from indices of columns.
std::set<Uid> made_of_columns(const BackendGraph& graph) {
  std::set<Uid> made;
  for_each<Pointwise>(graph, [&](const Pointwise& node) {
    const bool reads = made.contains(node.x) || (node.b && made.contains(*node.b)) ||
                       (node.t && made.contains(*node.t));
    const bool is_index = node.mode == PointwiseMode::gen_index;
    if (is_index ? node.axis == kColumns : reads) made.insert(node.y);
  });
  return made;
}

// Pointwise nodes by the tensor that they make.
using Elementwise = std::map<Uid, const Pointwise*>;

// An index, and how scalars move it: "+-" is index + scalar - scalar.
struct Position {
  std::int64_t axis = 0;  // 0: it is something else
  std::string moves;
};

// The condition of a select of a tensor or a constant, where cuDNN looks for its own masks.
struct Condition {
  const BackendGraph& graph;
  const Elementwise& nodes;
  Uid selected;
  const Pointwise& node;

  // The position of an index of the selected tensor.
  Position position_of(Uid uid) const {
    std::string moves;
    for (auto found = nodes.find(uid); found != nodes.end(); found = nodes.find(uid)) {
      const Pointwise& made = *found->second;
      uid = made.x;
      if (made.mode == PointwiseMode::gen_index && uid == selected) {
        return {made.axis.value_or(0), {moves.rbegin(), moves.rend()}};
      }
      if (!is_shift(made.mode) || !is_scalar(graph, *made.b)) break;
      moves += made.mode == PointwiseMode::add ? '+' : '-';
    }
    return {};
  }
  // The axis of an index of the selected tensor, as it is; 0: it is no such index.
  std::int64_t axis_of(Uid uid) const {
    const Position position = position_of(uid);
    return position.moves.empty() ? position.axis : 0;
  }
  // Whether it is `row < something`, or `something < row`.
  bool bounds_rows(Uid uid) const {
    const auto found = nodes.find(uid);
    return found != nodes.end() && found->second->mode == PointwiseMode::cmp_lt &&
           (axis_of(found->second->x) == kRows || axis_of(*found->second->b) == kRows);
  }
};

template <typename Holds>
bool has_condition(const BackendGraph& graph, const Holds& holds) {
  Elementwise nodes;
  for_each<Pointwise>(graph, [&](const Pointwise& node) { nodes.emplace(node.y, &node); });
  bool found = false;
  for_each<Pointwise>(graph, [&](const Pointwise& select) {
    if (select.mode != PointwiseMode::binary_select || !is_scalar(graph, *select.b)) return;
    const auto condition = nodes.find(*select.t);
    found |=
        condition != nodes.end() && holds(Condition{graph, nodes, select.x, *condition->second});
  });
  return found;
}

bool transposed_values(const BackendGraph& graph) {
  bool found = false;
  for_each<graph::Reshape>(graph, [&](const graph::Reshape&) { found = true; });
  return found;
}

// With lengths, cuDNN crashes on such graphs, so that no plan has them.
bool like_padding(const BackendGraph& graph) {
  if (!lengths_of(graph).empty()) return false;
  const std::set<Uid> columns = made_of_columns(graph);
  return has_condition(graph, [&](const Condition& condition) {
    const Pointwise& node = condition.node;
    if (graph::is_logical(node.mode)) {
      return (condition.bounds_rows(node.x) && columns.contains(*node.b)) ||
             (condition.bounds_rows(*node.b) && columns.contains(node.x));
    }
    return condition.bounds_rows(node.y) && (columns.contains(node.x) || columns.contains(*node.b));
  });
}

// Whether cuDNN takes `>` and `>=` of the two for a bound of its causal mask or of a window. It
// does not look at which of them comes first.
bool make_a_bound(const Position& x, const Position& b) {
  if (x.axis == 0 || b.axis == 0 || x.axis == b.axis) return false;
  if (!x.moves.empty() && !b.moves.empty()) return false;
  const Position& moved = x.moves.empty() ? b : x;
  constexpr std::string_view kMoves[] = {"", "+", "+-+"};
  return std::ranges::count(kMoves, moved.moves) == 1 ||
         (moved.axis == kRows && moved.moves == "+-");
}

// A bound is right if it is `row >= column`, or if what is moved comes first. Of `row + scalar -
// scalar` it is `>=`. It is one of integers: the bits of a real that moves rows are read as an
// integer, and one that moves columns is truncated.
bool like_causal(const BackendGraph& graph) {
  return has_condition(graph, [&](const Condition& condition) {
    const Pointwise& node = condition.node;
    const bool strict = node.mode == PointwiseMode::cmp_gt;
    if (!strict && node.mode != PointwiseMode::cmp_ge) return false;
    const Position first = condition.position_of(node.x);
    const Position second = condition.position_of(*node.b);
    if (!make_a_bound(first, second)) return false;
    if (first.moves.empty()) return strict || first.axis == kColumns || !second.moves.empty();
    return node.compute == DType::f32 || (strict && first.moves == "+-");
  });
}

bool left_bound_alone(const BackendGraph& graph) {
  return has_band(graph, graph::BandSide::left) && !has_band(graph, graph::BandSide::right);
}

bool pages(const BackendGraph& graph) { return !page_sizes(graph).empty(); }

bool pages_of_two_sizes(const BackendGraph& graph) { return page_sizes(graph).size() > 1; }

// In a graph of many nodes the sink appears as a maximum with each row's maximum.
bool sink(const BackendGraph& graph) {
  const auto* sdpa = graph::sdpa_of(graph);
  bool found = sdpa != nullptr && sdpa->sink.has_value();
  for_each<Pointwise>(graph, [&](const Pointwise& node) {
    found |= node.mode == PointwiseMode::max && graph.find(node.y)->dims[3] == 1;
  });
  return found;
}

bool stats(const BackendGraph& graph) {
  const auto* sdpa = graph::sdpa_of(graph);
  if (sdpa != nullptr) return sdpa->stats.has_value();
  return std::ranges::any_of(graph.nodes, [&](const graph::Node& node) {
    const graph::Tensor& output = *graph.find(graph::output_of(node));
    const auto* reduction = std::get_if<graph::Reduction>(&node);
    const bool is_amax = reduction != nullptr && reduction->op == graph::ReduceOp::amax;
    return output.storage == graph::Storage::device && output.dims[3] == 1 && !is_amax &&
           !std::holds_alternative<graph::Matmul>(node);
  });
}

bool random_dropout(const BackendGraph& graph) {
  const auto* sdpa = graph::sdpa_of(graph);
  bool found = sdpa != nullptr && sdpa->dropout > 0;
  for_each<graph::Rng>(graph, [&](const graph::Rng&) { found = true; });
  return found;
}

bool eight_bits(const BackendGraph& graph) {
  return std::ranges::any_of(graph.tensors,
                             [](const graph::Tensor& tensor) { return is_fp8(tensor.dtype); });
}

bool packed_sequences(const BackendGraph& graph) {
  return std::ranges::any_of(graph.tensors,
                             [](const graph::Tensor& tensor) { return tensor.ragged.has_value(); });
}

bool block_scales(const BackendGraph& graph) {
  bool found = false;
  for_each<graph::BlockDequantize>(graph, [&](const graph::BlockDequantize&) { found = true; });
  return found;
}

// Head dimensions of k, and of v: that of the first product's factors, and of the second's result.
bool deep_heads_in_8_bits(const BackendGraph& graph) {
  if (!eight_bits(graph)) return false;
  constexpr std::int64_t kDeep = 128;
  std::vector<std::int64_t> depths;
  if (const auto* sdpa = graph::sdpa_of(graph)) {
    depths = {graph.find(sdpa->k)->dims[3], graph.find(sdpa->v)->dims[3]};
  } else {
    for_each<graph::Matmul>(graph, [&](const graph::Matmul& product) {
      if (depths.size() < 2)
        depths.push_back(graph.find(depths.empty() ? product.a : product.c)->dims[3]);
    });
  }
  if (depths.size() < 2 || (depths[0] == 192 && depths[1] == kDeep)) return false;
  return std::max(depths[0], depths[1]) > kDeep;
}

}  // namespace

Features features_of(std::initializer_list<Feature> list) {
  Features features;
  for (const Feature feature : list) features.set(static_cast<std::size_t>(feature));
  return features;
}

Features features_of(const BackendGraph& graph) {
  Features features;
  const bool product_alone =
      graph.nodes.size() == 1 && std::holds_alternative<graph::Matmul>(graph.nodes.front());
  if (product_alone) return features;
#define ATTN_GRAPH_FEATURE(name, what) \
  features.set(static_cast<std::size_t>(Feature::name), name(graph));
#include "runtime/cudnn/graph_features.def"
#undef ATTN_GRAPH_FEATURE
  return features;
}

}  // namespace attn::cudnn
