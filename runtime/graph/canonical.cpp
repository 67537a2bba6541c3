#include "runtime/graph/canonical.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/graph/operands.h"

namespace attn::graph {
namespace {

// Everything about a tensor except its uid and name.
std::string describe(const Tensor& tensor) {
  const bool reordered = tensor.reordering != Reordering::none;
  return fmt::format("{} [{}] strides [{}] {} align {}{}", to_string(tensor.dtype),
                     fmt::join(tensor.dims, ","), fmt::join(tensor.strides, ","),
                     to_string(tensor.storage), tensor.alignment,
                     reordered ? fmt::format(" {}", to_string(tensor.reordering)) : std::string());
}

// What a node has besides its inputs. Distinguishes ill-formed nodes (rejected by validate) too.
struct Suffix {
  std::string operator()(const Matmul&) const { return ""; }
  std::string operator()(const Pointwise& node) const {
    std::string text;
    if (node.axis) text += fmt::format(" axis {}", *node.axis);
    if (node.t && !node.b) text += " t only";
    return text;
  }
  std::string operator()(const Reduction&) const { return ""; }
  std::string operator()(const Rng& node) const { return fmt::format(" keep {}", node.keep); }
  std::string operator()(const PagedLoad&) const { return ""; }
  std::string operator()(const BandMask&) const { return ""; }
  std::string operator()(const Reshape&) const { return ""; }
  std::string operator()(const BlockDequantize& node) const {
    return fmt::format(" blocks {}", node.size);
  }
  std::string operator()(const SdpaForward& node) const {
    std::string text;
    if (node.stats) text += " stats";
    if (node.dropout > 0) text += fmt::format(" dropout {}", node.dropout);
    return text;
  }
};

class Writer {
 public:
  explicit Writer(const BackendGraph& graph) {
    for (const Tensor& tensor : graph.tensors) tensors_.emplace(tensor.uid, &tensor);
  }

  void write(const Node& node) {
    const std::vector<Uid> outputs = outputs_of(node);
    for (const Uid uid : inputs_of(node)) define(uid);
    for (const Uid uid : outputs) define(uid);
    const auto* sdpa = std::get_if<SdpaForward>(&node);
    std::string line = fmt::format("{}.{}", mnemonic_of(node), to_string(compute_of(node)));
    for (const Uid uid : inputs_of(node)) line += fmt::format(" {}", result_.index.at(uid));
    line += " ->";
    for (const Uid uid : outputs) line += fmt::format(" {}", result_.index.at(uid));
    for (const NamedInput& input : named_inputs_of(node)) line += fmt::format(" {}", input.name);
    if (sdpa != nullptr && sdpa->score) {
      define(*sdpa->score);
      line += fmt::format(" score {}", result_.index.at(*sdpa->score));
    }
    result_.text += line + std::visit(Suffix{}, node) + '\n';
  }

  // Tensors that no node uses, sorted by description.
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
    const bool known = found != tensors_.end();
    result_.text +=
        fmt::format("tensor {} {}\n", number, known ? describe(*found->second) : "unknown");
    if (!known || !found->second->ragged) return;
    define(*found->second->ragged);
    result_.text += fmt::format("ragged {} {}\n", number, result_.index.at(*found->second->ragged));
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
