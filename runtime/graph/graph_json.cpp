#include "runtime/graph/graph_members.h"

namespace attn::graph {

std::string to_json(const BackendGraph& graph) { return json::json_of(graph).dump(); }

Result<BackendGraph> from_json(std::string_view text) {
  return json::parse_members<BackendGraph>(text);
}

}  // namespace attn::graph
