#include <fmt/format.h>

#include "runtime/graph/backend_graph.h"
#include "runtime/graph/listing.h"
#include "runtime/graph/operands.h"

namespace attn::graph {
namespace {

std::string name_suffix(std::string_view name) {
  return name.empty() ? std::string() : fmt::format(" ({})", escaped(name));
}

std::string declaration(const Tensor& tensor) {
  return fmt::format("%{} {} {}{}{}", tensor.uid,
                     type_text(tensor.dtype, tensor.dims, tensor.strides),
                     to_string(tensor.storage),
                     tensor.storage == Storage::device ? fmt::format(" align {}", tensor.alignment)
                                                       : std::string(),
                     name_suffix(tensor.name));
}

std::string line_of(const BackendGraph& graph, const Node& node) {
  const Tensor* result = graph.find(output_of(node));
  std::string line = fmt::format("%{}", output_of(node));
  if (result != nullptr) line += ' ' + type_text(result->dtype, result->dims, result->strides);
  line += fmt::format(" = {}.{}", mnemonic_of(node), to_string(compute_of(node)));
  std::string_view separator = " ";
  for (const Uid uid : inputs_of(node)) {
    line += fmt::format("{}%{}", separator, uid);
    separator = ", ";
  }
  const auto* pointwise = std::get_if<Pointwise>(&node);
  if (pointwise != nullptr && pointwise->axis) line += fmt::format(" axis {}", *pointwise->axis);
  return result == nullptr ? line : line + name_suffix(result->name);
}

}  // namespace

std::string to_text(const BackendGraph& graph) {
  std::string text;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.storage != Storage::virtual_value) text += declaration(tensor) + '\n';
  }
  for (const Node& node : graph.nodes) text += line_of(graph, node) + '\n';
  return text;
}

}  // namespace attn::graph
