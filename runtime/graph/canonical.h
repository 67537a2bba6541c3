// Canonical form of a graph and its renumbering of uids, which programs use to name operands.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "runtime/graph/backend_graph.h"

namespace attn::graph {

struct Canonical {
  BackendGraph graph;                // with these numbers as uids, and its tensors in this order
  std::map<Uid, std::size_t> index;  // new number of each uid, for all tensors of the graph
};

Canonical canonicalize(const BackendGraph& graph);

}  // namespace attn::graph
