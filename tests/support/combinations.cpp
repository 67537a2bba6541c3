#include "tests/support/combinations.h"

#include <fmt/format.h>

namespace attn::testing {
namespace {

using graph::BackendGraph;
using graph::Pointwise;
using graph::Storage;
using graph::Tensor;

std::string axes_of(const Tensor& tensor) {
  std::string axes = "bhqk";
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (tensor.dims[i] == 1 || tensor.strides[i] == 0) axes[i] = '.';
  }
  return axes;
}

std::string operand(const Tensor& tensor) {
  const std::string_view dtype = to_string(tensor.dtype);
  switch (tensor.storage) {
    case Storage::host_scalar: return fmt::format("scalar {}", dtype);
    case Storage::device: return fmt::format("tensor [{}] {}", axes_of(tensor), dtype);
    case Storage::virtual_value: break;
  }
  return fmt::format("{} {}", tensor.dims[3] == 1 ? "virtual rows" : "virtual", dtype);
}

std::string words(const BackendGraph& graph, const Pointwise& node) {
  const Tensor& y = *graph.find(node.y);
  std::string text =
      fmt::format("{} {} -> {}: {}", graph::to_string(node.mode), to_string(node.compute),
                  to_string(y.dtype), operand(*graph.find(node.x)));
  for (const auto& input : {node.b, node.t}) {
    if (input) text += ", " + operand(*graph.find(*input));
  }
  if (node.axis) text += fmt::format(", axis {}", *node.axis);
  return text;
}

}  // namespace

std::set<std::string> combinations(const BackendGraph& graph) {
  std::set<std::string> all;
  bool before = true;
  const auto* product = std::get_if<graph::Matmul>(&graph.nodes.front());
  for (const graph::Node& node : graph.nodes) {
    if (product == nullptr) product = std::get_if<graph::Matmul>(&node);  // behind paged loads
    if (std::holds_alternative<graph::Reduction>(node)) before = false;
    const auto* pointwise = std::get_if<Pointwise>(&node);
    if (pointwise == nullptr) continue;
    const bool one_row = product != nullptr && graph.find(product->c)->dims[2] == 1;
    all.insert(fmt::format("{}; {} the softmax, {}", words(graph, *pointwise),
                           before ? "before" : "in or behind", one_row ? "one row" : "many rows"));
  }
  return all;
}

}  // namespace attn::testing
