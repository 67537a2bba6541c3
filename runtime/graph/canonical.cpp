#include "runtime/graph/canonical.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/graph/operands.h"

namespace attn::graph {
namespace {

// Everything about a tensor but its uid and name.
std::string describe(const Tensor& tensor) {
  return fmt::format("{} [{}] strides [{}] {} align {}", to_string(tensor.dtype),
                     fmt::join(tensor.dims, ","), fmt::join(tensor.strides, ","),
                     to_string(tensor.storage), tensor.alignment);
}

class Writer {
 public:
  explicit Writer(const BackendGraph& graph) {
    for (const Tensor& tensor : graph.tensors) tensors_.emplace(tensor.uid, &tensor);
  }

  void write(const Node& node) {
    for (const Uid uid : inputs_of(node)) define(uid);
    define(output_of(node));
    std::string line = fmt::format("{}.{}", mnemonic_of(node), to_string(compute_of(node)));
    for (const Uid uid : inputs_of(node)) line += fmt::format(" {}", result_.index.at(uid));
    line += fmt::format(" -> {}", result_.index.at(output_of(node)));
    if (const auto* pointwise = std::get_if<Pointwise>(&node)) line += suffix(*pointwise);
    result_.text += line + '\n';
  }

  // Tensors that no node uses, in the order of what they are.
  void write_rest() {
    std::vector<std::pair<std::string, Uid>> rest;
    for (const auto& [uid, tensor] : tensors_) {
      if (!result_.index.contains(uid)) rest.emplace_back(describe(*tensor), uid);
    }
    std::ranges::sort(rest);
    for (const auto& [text, uid] : rest) define(uid);
  }

  Canonical take() { return std::move(result_); }

 private:
  void define(Uid uid) {
    const std::size_t number = result_.index.size();
    if (!result_.index.emplace(uid, number).second) return;
    const auto found = tensors_.find(uid);
    result_.text += fmt::format("tensor {} {}\n", number,
                                found == tensors_.end() ? "unknown" : describe(*found->second));
  }

  // An ill-formed node (validate refuses it) must not read like another one.
  static std::string suffix(const Pointwise& node) {
    std::string text;
    if (node.axis) text += fmt::format(" axis {}", *node.axis);
    if (node.t && !node.b) text += " t only";
    return text;
  }

  std::map<Uid, const Tensor*> tensors_;
  Canonical result_;
};

}  // namespace

Canonical canonicalize(const BackendGraph& graph) {
  Writer writer(graph);
  for (const Node& node : graph.nodes) writer.write(node);
  writer.write_rest();
  return writer.take();
}

std::string canonical_text(const BackendGraph& graph) { return canonicalize(graph).text; }

}  // namespace attn::graph
