#include "tests/support/crash_patterns.h"

#include <algorithm>
#include <set>

#include "runtime/graph/operands.h"

namespace attn::testing {
namespace {

using graph::BackendGraph;
using graph::Pointwise;
using graph::PointwiseMode;
using graph::Storage;
using graph::Tensor;
using graph::Uid;

std::set<Uid> sizes_of_products(const BackendGraph& graph) {
  std::set<Uid> uids;
  for (const graph::Node& node : graph.nodes) {
    const auto* matmul = std::get_if<graph::Matmul>(&node);
    if (matmul == nullptr) continue;
    for (const auto& uid : {matmul->m, matmul->n, matmul->k}) {
      if (uid) uids.insert(*uid);
    }
  }
  return uids;
}

// The indices of rows.
std::set<Uid> rows_of(const BackendGraph& graph) {
  std::set<Uid> uids;
  for (const graph::Node& node : graph.nodes) {
    const auto* pointwise = std::get_if<Pointwise>(&node);
    if (pointwise != nullptr && pointwise->axis == 2) uids.insert(pointwise->y);
  }
  return uids;
}

bool is_readable(DType dtype) {
  const DType types[] = {DType::f16, DType::bf16, DType::f32, DType::i32};
  return std::ranges::find(types, dtype) != std::end(types);
}

// Describes the problem of an operand of scores with `rows` rows; "" if there is none.
std::string operand_pattern(const Tensor& operand, std::int64_t rows) {
  const auto& dims = operand.dims;
  if (!is_readable(operand.dtype)) return "an element type that kernels cannot read";
  if (dims[2] == 1 && dims[3] == 1 && dims[0] > 1 && (rows > 1 || dims[1] > 1)) {
    return "an operand that varies with the batch but neither with rows nor with columns";
  }
  if (dims[3] > 1 && operand.strides[3] != 1 && (dims[2] > 1 || rows == 1)) {
    return "an operand whose columns are not adjacent";
  }
  return "";
}

std::string pointwise_pattern(const BackendGraph& graph, const Pointwise& node,
                              const std::set<Uid>& sizes, const std::set<Uid>& padding) {
  const Tensor& x = *graph.find(node.x);
  const bool of_rows = graph.find(node.y)->dims[3] == 1;  // a sink may be the first input
  if (x.storage != Storage::virtual_value && !of_rows) return "a first input that is not virtual";
  if (graph::is_logical(node.mode) && node.compute != DType::f32 && !padding.contains(node.x)) {
    return "logic that is not in FLOAT";
  }
  if (node.t && graph.find(*node.t)->storage != Storage::virtual_value) {
    return "a condition that is not virtual";
  }
  if (!node.b) return "";
  const Tensor& b = *graph.find(*node.b);
  const bool reals = x.dtype == DType::f32 && b.dtype == DType::f32;
  if (graph::is_comparison(node.mode) && reals && node.compute != DType::f32) {
    return "a comparison of reals that is not in FLOAT";
  }
  if (b.storage != Storage::device || sizes.contains(b.uid)) return "";
  return operand_pattern(b, graph.find(node.y)->dims[2]);
}

}  // namespace

std::string crash_pattern(const BackendGraph& graph) {
  const std::set<Uid> sizes = sizes_of_products(graph);
  const std::set<Uid> rows = rows_of(graph);
  std::set<Uid> padding;  // comparisons with sizes of products
  for (const graph::Node& node : graph.nodes) {
    const auto* pointwise = std::get_if<Pointwise>(&node);
    if (pointwise == nullptr) continue;
    std::string found = pointwise_pattern(graph, *pointwise, sizes, padding);
    if (!found.empty()) return found;
    if (pointwise->b && sizes.contains(*pointwise->b)) {
      padding.insert(pointwise->y);
    } else if (pointwise->mode == PointwiseMode::cmp_lt && rows.contains(pointwise->x)) {
      return "a comparison of rows that looks like the padding mask";
    }
  }
  return "";
}

}  // namespace attn::testing
