// Finds the node that makes cuDNN crash, if it crashed while processing the graph as a whole.
#pragma once

#include <functional>
#include <optional>

#include "runtime/graph/backend_graph.h"

namespace attn::worker {

// Whether cuDNN crashes with this graph; nullopt if that cannot be determined.
using Dies = std::function<std::optional<bool>(const graph::BackendGraph&)>;

// The graph is known to crash. Shortens its score chain (the nodes before the first reduction,
// which begins the softmax) by bisection, connecting the rest to the last remaining score, and
// returns the node at which the crash begins. Nullopt if there is no such chain, if the shortest
// graph crashes too, or if `dies` cannot tell. Calls `dies` about log2(nodes) times.
std::optional<int> locate_death(const graph::BackendGraph& graph, const Dies& dies);

// The graph without the score nodes from index `length` on: readers of the chain's result read the
// last remaining value of the same shape and type instead. Nullopt if there is none.
std::optional<graph::BackendGraph> cut_score_chain(const graph::BackendGraph& graph, int length);

}  // namespace attn::worker
