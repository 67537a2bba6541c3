#include "runtime/worker/locate.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/graph/operands.h"

namespace attn::worker {
namespace {

using graph::BackendGraph;
using graph::Node;
using graph::Reduction;
using graph::Tensor;
using graph::Uid;

// Index of the node that begins the softmax, or nullopt.
std::optional<int> softmax_start(const BackendGraph& graph) {
  const auto found = std::ranges::find_if(
      graph.nodes, [](const Node& node) { return std::holds_alternative<Reduction>(node); });
  if (found == graph.nodes.end()) return std::nullopt;
  return static_cast<int>(std::distance(graph.nodes.begin(), found));
}

bool same_kind(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.dims == b.dims && a.storage == b.storage;
}

// The last output of the first `length` nodes that can replace `score`.
std::optional<Uid> last_like(const BackendGraph& graph, const Tensor& score, int length) {
  for (int i = length - 1; i >= 0; --i) {
    const Tensor* candidate = graph.find(output_of(graph.nodes[static_cast<std::size_t>(i)]));
    if (candidate != nullptr && same_kind(*candidate, score)) return candidate->uid;
  }
  return std::nullopt;
}

// Removes nodes whose results are unused, and tensors that no node uses.
void prune(BackendGraph& graph) {
  std::set<Uid> needed;
  std::vector<Node> kept;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const Tensor* output = graph.find(output_of(*node));
    const bool is_result = output == nullptr || output->storage != graph::Storage::virtual_value;
    if (!is_result && !needed.contains(output->uid)) continue;
    needed.insert(output_of(*node));
    for (const Uid input : inputs_of(*node)) needed.insert(input);
    kept.push_back(*node);
  }
  std::ranges::reverse(kept);
  graph.nodes = std::move(kept);
  std::erase_if(graph.tensors, [&](const Tensor& tensor) { return !needed.contains(tensor.uid); });
}

}  // namespace

std::optional<BackendGraph> cut_score_chain(const BackendGraph& graph, int length) {
  const std::optional<int> start = softmax_start(graph);
  if (!start || length > *start) return std::nullopt;
  const Uid full = std::get<Reduction>(graph.nodes[static_cast<std::size_t>(*start)]).x;
  const Tensor* score = graph.find(full);
  if (score == nullptr) return std::nullopt;
  const std::optional<Uid> left = last_like(graph, *score, length);
  if (!left) return std::nullopt;
  BackendGraph cut = graph;
  cut.nodes.erase(cut.nodes.begin() + length, cut.nodes.begin() + *start);
  for (auto node = cut.nodes.begin() + length; node != cut.nodes.end(); ++node) {
    replace_inputs(*node, full, *left);
  }
  prune(cut);
  return cut;
}

std::optional<int> locate_death(const BackendGraph& graph, const Dies& dies) {
  const std::optional<int> start = softmax_start(graph);
  if (!start) return std::nullopt;
  int lives = 0;
  while (lives < *start && !cut_score_chain(graph, lives)) ++lives;
  const std::optional<BackendGraph> shortest = cut_score_chain(graph, lives);
  if (!shortest || lives == *start || dies(*shortest).value_or(true)) return std::nullopt;
  int dead = *start;
  while (dead - lives > 1) {
    const int middle = lives + (dead - lives) / 2;
    const std::optional<BackendGraph> cut = cut_score_chain(graph, middle);
    const std::optional<bool> died = cut ? dies(*cut) : false;
    if (!died) return std::nullopt;
    (*died ? dead : lives) = middle;
  }
  return dead - 1;
}

}  // namespace attn::worker
