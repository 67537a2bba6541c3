#include "tests/support/combinations.h"

#include <fmt/format.h>

#include <algorithm>

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

// Only a backward transposes values.
bool is_backward(const BackendGraph& graph) {
  return std::ranges::any_of(graph.nodes, [](const graph::Node& node) {
    return std::holds_alternative<graph::Reshape>(node);
  });
}

// The position in a graph, as its nodes are visited in order.
class Place {
 public:
  explicit Place(const BackendGraph& graph) : backward_(is_backward(graph)) {}

  void pass(const graph::Node& node) {
    if (std::holds_alternative<graph::Matmul>(node)) ++products_;
    if (std::holds_alternative<graph::Reduction>(node)) reduced_ = true;
  }

  std::string_view words() const {
    if (!backward_) return reduced_ ? "in or behind the softmax" : "before the softmax";
    if (products_ < 2) return products_ == 0 ? "in delta" : "in the backward's weights";
    return "in the backward's gradients";
  }

 private:
  bool backward_;
  int products_ = 0;
  bool reduced_ = false;
};

bool has_one_row(const BackendGraph& graph) {
  for (const graph::Node& node : graph.nodes) {
    const auto* product = std::get_if<graph::Matmul>(&node);
    if (product != nullptr) return graph.find(product->c)->dims[2] == 1;
  }
  return false;
}

}  // namespace

std::set<std::string> combinations(const BackendGraph& graph) {
  std::set<std::string> all;
  Place place(graph);
  const std::string_view rows = has_one_row(graph) ? "one row" : "many rows";
  for (const graph::Node& node : graph.nodes) {
    place.pass(node);
    const auto* pointwise = std::get_if<Pointwise>(&node);
    if (pointwise == nullptr) continue;
    all.insert(fmt::format("{}; {}, {}", words(graph, *pointwise), place.words(), rows));
  }
  return all;
}

}  // namespace attn::testing
