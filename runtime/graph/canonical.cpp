#include "runtime/graph/canonical.h"

#include <algorithm>
#include <utility>

#include "runtime/graph/graph_members.h"
#include "runtime/graph/operands.h"

namespace attn::graph {
namespace {

// Numbers uids in the order of their first use.
class Numbering {
 public:
  explicit Numbering(const BackendGraph& graph) {
    for (const Tensor& tensor : graph.tensors) tensors_.emplace(tensor.uid, &tensor);
  }

  void add(Node node) {
    for (const Uid uid : inputs_of(node)) number_of(uid);
    for (const Uid uid : outputs_of(node)) number_of(uid);
    for (Uid* uid : uids_of(node)) *uid = number_of(*uid);
    result_.graph.nodes.push_back(std::move(node));
  }

  // Tensors that no node uses, sorted by all but their numbers.
  void add_rest() {
    std::vector<std::pair<std::string, Uid>> rest;
    for (const auto& [uid, tensor] : tensors_) {
      if (result_.index.contains(uid)) continue;
      Tensor unnumbered = *tensor;
      unnumbered.uid = 0;
      unnumbered.ragged.reset();
      rest.emplace_back(json::canonical_text(unnumbered), uid);
    }
    std::ranges::sort(rest);
    for (const auto& [text, uid] : rest) number_of(uid);
  }

  Canonical take() { return std::move(result_); }

 private:
  // A uid may have no tensor in a graph that validate rejects.
  Uid number_of(Uid uid) {
    const auto [entry, is_new] = result_.index.emplace(uid, result_.index.size());
    const auto number = static_cast<Uid>(entry->second);
    const auto found = tensors_.find(uid);
    if (!is_new || found == tensors_.end()) return number;
    const std::size_t at = result_.graph.tensors.size();
    result_.graph.tensors.push_back(*found->second);
    result_.graph.tensors[at].uid = number;
    const auto ragged = found->second->ragged;
    if (ragged) result_.graph.tensors[at].ragged = number_of(*ragged);
    return number;
  }

  std::map<Uid, const Tensor*> tensors_;
  Canonical result_;
};

}  // namespace

Canonical canonicalize(const BackendGraph& graph) {
  Numbering numbering(graph);
  for (const Node& node : graph.nodes) numbering.add(node);
  numbering.add_rest();
  return numbering.take();
}

std::string canonical_text(const BackendGraph& graph) {
  return json::canonical_text(canonicalize(graph).graph);
}

std::string to_json(const BackendGraph& graph) { return json::json_of(graph).dump(); }

Result<BackendGraph> from_json(std::string_view text) {
  return json::parse_members<BackendGraph>(text);
}

}  // namespace attn::graph
