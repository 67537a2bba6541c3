#include "runtime/graph/operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/graph/graph_members.h"

namespace attn::graph {
namespace {

// What the members of a node say of its tensors: a visitor (members.h). Id: Uid or const Uid.
template <typename Id>
class Operands {
 public:
  std::vector<Id*> fixed, outputs;
  std::vector<std::pair<std::string_view, Id*>> named;
  std::string_view word;  // of its kind
  DType compute = DType::f32;

  void input(std::string_view, auto& uid) { add(fixed, uid); }
  void output(std::string_view, auto& uid) { add(outputs, uid); }
  void named_input(std::string_view name, auto& uid) {
    if (uid) named.emplace_back(name, &*uid);
  }
  void operator()(std::string_view name, const DType& type) {
    if (name == "compute") compute = type;
  }
  void operator()(std::string_view, const auto&) {}
  void optional(std::string_view, const auto&) {}
  void position(const SourcePos&) {}
  void kind(std::string_view, std::string_view its_word) { word = its_word; }

 private:
  static void add(std::vector<Id*>& list, Id& uid) { list.push_back(&uid); }
  static void add(std::vector<Id*>& list, auto& uid) {
    if (uid) list.push_back(&*uid);
  }
};

Operands<const Uid> operands_of(const Node& node) {
  Operands<const Uid> operands;
  std::visit([&operands](const auto& operation) { members(operation, operands); }, node);
  return operands;
}

std::vector<Uid> values_of(const std::vector<const Uid*>& uids) {
  std::vector<Uid> values;
  for (const Uid* uid : uids) values.push_back(*uid);
  return values;
}

}  // namespace

std::vector<Uid> fixed_inputs_of(const Node& node) { return values_of(operands_of(node).fixed); }

std::vector<NamedInput> named_inputs_of(const Node& node) {
  std::vector<NamedInput> inputs;
  for (const auto& [name, uid] : operands_of(node).named) inputs.push_back({name, *uid});
  return inputs;
}

std::vector<Uid> inputs_of(const Node& node) {
  const Operands<const Uid> operands = operands_of(node);
  std::vector<Uid> uids = values_of(operands.fixed);
  for (const auto& [name, uid] : operands.named) uids.push_back(*uid);
  return uids;
}

Uid output_of(const Node& node) { return *operands_of(node).outputs.front(); }

std::vector<Uid> outputs_of(const Node& node) { return values_of(operands_of(node).outputs); }

std::vector<Uid*> uids_of(Node& node) {
  Operands<Uid> operands;
  std::visit([&operands](auto& operation) { members(operation, operands); }, node);
  std::vector<Uid*> uids = operands.fixed;
  for (const auto& [name, uid] : operands.named) uids.push_back(uid);
  uids.insert(uids.end(), operands.outputs.begin(), operands.outputs.end());
  auto* const sdpa = std::get_if<SdpaForward>(&node);
  if (sdpa != nullptr && sdpa->score) uids.push_back(&*sdpa->score);
  return uids;
}

void replace_inputs(Node& node, Uid from, Uid to) {
  Operands<Uid> operands;
  std::visit([&operands](auto& operation) { members(operation, operands); }, node);
  for (Uid* uid : operands.fixed) *uid = *uid == from ? to : *uid;
  for (const auto& [name, uid] : operands.named) *uid = *uid == from ? to : *uid;
}

bool is_written(const BackendGraph& graph, Uid uid) {
  return std::ranges::any_of(graph.nodes, [uid](const Node& node) {
    const std::vector<Uid> outputs = outputs_of(node);
    return std::ranges::find(outputs, uid) != outputs.end();
  });
}

std::set<Uid> written_by(const BackendGraph& graph) {
  std::set<Uid> uids;
  for (const Node& node : graph.nodes) {
    for (const Uid uid : outputs_of(node)) uids.insert(uid);
  }
  return uids;
}

std::string mnemonic_of(const Node& node) {
  if (const auto* pointwise = std::get_if<Pointwise>(&node))
    return std::string(to_string(pointwise->mode));
  std::string kind(operands_of(node).word);
  if (const auto* reduction = std::get_if<Reduction>(&node))
    return fmt::format("reduce_{}", to_string(reduction->op));
  if (const auto* mask = std::get_if<BandMask>(&node))
    return fmt::format("{}_{}", kind, to_string(mask->side));
  return kind;
}

DType compute_of(const Node& node) { return operands_of(node).compute; }

const SdpaForward* sdpa_of(const BackendGraph& graph) {
  return graph.nodes.empty() ? nullptr : std::get_if<SdpaForward>(&graph.nodes.back());
}

}  // namespace attn::graph
