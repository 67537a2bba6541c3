// Canonical form of a graph, with the numbering that it gave to the uids: a program needs it to
// name its operands in the same way.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "runtime/graph/backend_graph.h"

namespace attn::graph {

struct Canonical {
  std::string text;                  // see canonical_text
  std::map<Uid, std::size_t> index;  // new number of each uid; total over the graph's tensors
};

Canonical canonicalize(const BackendGraph& graph);

}  // namespace attn::graph
