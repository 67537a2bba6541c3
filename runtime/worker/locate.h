// Which node of a graph makes cuDNN die, when it died while looking at the graph as a whole.
#pragma once

#include <functional>
#include <optional>

#include "runtime/graph/backend_graph.h"

namespace attn::worker {

// Whether cuDNN dies of this graph; nothing when that cannot be found out (any more).
using Dies = std::function<std::optional<bool>(const graph::BackendGraph&)>;

// The graph is known to die. Its score chain (the nodes before the first reduction, which begins
// the softmax) is cut off after ever fewer nodes, by halving, and the rest joined to the last score
// that is left: the answer is the node with which the death begins. Nothing when there is no such
// chain, when the shortest graph dies too, or when `dies` does not know. Calls `dies` about
// log2(nodes) times.
std::optional<int> locate_death(const graph::BackendGraph& graph, const Dies& dies);

// The graph without the score nodes from index `length` on: what read the full chain's result reads
// the last value of the same shape and type that is left. Nothing when none is left.
std::optional<graph::BackendGraph> cut_score_chain(const graph::BackendGraph& graph, int length);

}  // namespace attn::worker
