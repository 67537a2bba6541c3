#include <fmt/format.h>

#include <map>

#include "runtime/graph/backend_graph.h"
#include "runtime/graph/listing.h"
#include "runtime/graph/operands.h"

namespace attn::graph {
namespace {

std::string name_suffix(std::string_view name) {
  return name.empty() ? std::string() : fmt::format(" ({})", escaped(name));
}

std::string declaration(const Tensor& tensor) {
  const bool reordered = tensor.reordering != Reordering::none;
  return fmt::format("%{} {} {}{}{}{}{}", tensor.uid,
                     type_text(tensor.dtype, tensor.dims, tensor.strides),
                     to_string(tensor.storage),
                     tensor.storage == Storage::device ? fmt::format(" align {}", tensor.alignment)
                                                       : std::string(),
                     tensor.ragged ? fmt::format(" ragged %{}", *tensor.ragged) : std::string(),
                     reordered ? fmt::format(" {}", to_string(tensor.reordering)) : std::string(),
                     name_suffix(tensor.name));
}

// The text after the inputs.
struct NodeSuffix {
  std::string operator()(const Matmul&) const { return ""; }
  std::string operator()(const Pointwise& node) const {
    return node.axis ? fmt::format(" axis {}", *node.axis) : std::string();
  }
  std::string operator()(const Reduction&) const { return ""; }
  std::string operator()(const Rng& node) const { return fmt::format(" keep {}", node.keep); }
  std::string operator()(const PagedLoad&) const { return ""; }
  std::string operator()(const BandMask&) const { return ""; }
  std::string operator()(const Reshape&) const { return ""; }
  std::string operator()(const BlockDequantize& node) const {
    return fmt::format(" blocks of {}", node.size);
  }
  std::string operator()(const SdpaForward& node) const {
    std::string text;
    if (node.score) text += fmt::format(" score %{}", *node.score);
    if (node.dropout > 0) text += fmt::format(" dropout {}", node.dropout);
    if (node.stats) text += fmt::format(" stats %{}", *node.stats);
    return text;
  }
};

// `result` is the node's output, null if the graph lacks it.
std::string line_of(const Tensor* result, const Node& node) {
  std::string line = fmt::format("%{}", output_of(node));
  if (result != nullptr) line += ' ' + type_text(result->dtype, result->dims, result->strides);
  line += fmt::format(" = {}.{}", mnemonic_of(node), to_string(compute_of(node)));
  std::string_view separator = " ";
  for (const Uid uid : fixed_inputs_of(node)) {
    line += fmt::format("{}%{}", separator, uid);
    separator = ", ";
  }
  for (const NamedInput& input : named_inputs_of(node)) {
    line += fmt::format(" {} %{}", input.name, input.uid);
  }
  line += std::visit(NodeSuffix{}, node);
  return result == nullptr ? line : line + name_suffix(result->name);
}

}  // namespace

std::string to_text(const BackendGraph& graph) {
  std::string text;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.storage != Storage::virtual_value) text += declaration(tensor) + '\n';
  }
  std::map<Uid, const Tensor*> tensors;
  for (const Tensor& tensor : graph.tensors) tensors.emplace(tensor.uid, &tensor);
  for (const Node& node : graph.nodes) {
    const auto found = tensors.find(output_of(node));
    text += line_of(found == tensors.end() ? nullptr : found->second, node) + '\n';
  }
  return text;
}

}  // namespace attn::graph
