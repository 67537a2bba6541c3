#include "runtime/cudnn/known_wrong.h"

#include <algorithm>
#include <set>

namespace attn::cudnn {
namespace {

using graph::Pointwise;
using graph::PointwiseMode;
using graph::Uid;

// Calls `visit` for every pointwise node.
template <typename Visit>
void for_each_pointwise(const graph::BackendGraph& graph, const Visit& visit) {
  for (const graph::Node& node : graph.nodes) {
    if (const auto* pointwise = std::get_if<Pointwise>(&node)) visit(*pointwise);
  }
}

bool is_shift(PointwiseMode mode) {
  return mode == PointwiseMode::add || mode == PointwiseMode::sub;
}

// Each batch's own sizes of the products.
std::set<Uid> lengths_of(const graph::BackendGraph& graph) {
  std::set<Uid> lengths;
  for (const graph::Node& node : graph.nodes) {
    const auto* matmul = std::get_if<graph::Matmul>(&node);
    if (matmul == nullptr) continue;
    for (const auto& size : {matmul->m, matmul->n, matmul->k}) {
      if (size) lengths.insert(*size);
    }
  }
  return lengths;
}

// Indices, and indices moved by a scalar or by lengths.
std::set<Uid> moved_indices(const graph::BackendGraph& graph, const std::set<Uid>& lengths) {
  std::set<Uid> indices;
  for_each_pointwise(graph, [&](const Pointwise& node) {
    const bool moved =
        is_shift(node.mode) && indices.contains(node.x) &&
        (graph.find(*node.b)->storage == graph::Storage::host_scalar || lengths.contains(*node.b));
    if (node.mode == PointwiseMode::gen_index || moved) indices.insert(node.y);
  });
  return indices;
}

// Whether an index is used for anything but the comparison of a band, row against column, and of
// padding, either against lengths.
bool has_index_outside_bands(const graph::BackendGraph& graph) {
  const std::set<Uid> lengths = lengths_of(graph);
  const std::set<Uid> indices = moved_indices(graph, lengths);
  bool outside = false;
  for_each_pointwise(graph, [&](const Pointwise& node) {
    const bool reads = node.mode != PointwiseMode::gen_index &&
                       (indices.contains(node.x) || (node.b && indices.contains(*node.b)));
    const bool is_zero = node.mode == PointwiseMode::sub && node.b == node.x;
    if (!reads || is_zero || indices.contains(node.y)) return;
    const bool compares = node.mode == PointwiseMode::cmp_ge || node.mode == PointwiseMode::cmp_gt;
    const bool band = compares && indices.contains(node.x) && indices.contains(*node.b);
    const bool padding = node.mode == PointwiseMode::cmp_lt && lengths.contains(*node.b);
    outside |= !band && !padding;
  });
  return outside;
}

bool has_single_row(const graph::BackendGraph& graph) {
  for (const graph::Node& node : graph.nodes) {
    if (const auto* scores = std::get_if<graph::Matmul>(&node)) {
      return graph.find(scores->c)->dims[2] == 1;
    }
  }
  return false;
}

}  // namespace

std::string_view known_wrong(const graph::BackendGraph& graph, std::int64_t engine) {
  // Engine 1 serves a single query row by splitting the keys, and numbers the columns of each split
  // from wherever it starts (9.19 on sm_90; specs of tests/gpu/forms at Sq = 1, such as
  // mask_modulo, relative_bias_form and head_index).
  constexpr std::int64_t kSplitKeys = 1;
  if (engine == kSplitKeys && has_single_row(graph) && has_index_outside_bands(graph)) {
    return "this engine computes wrong indices outside causal and window masks";
  }
  return {};
}

}  // namespace attn::cudnn
