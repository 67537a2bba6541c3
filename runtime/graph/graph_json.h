// Reads a graph from JSON, as part of a larger document: programs, plan files, worker requests.
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/graph/backend_graph.h"
#include "runtime/graph/json_value.h"

namespace attn::graph {

nlohmann::ordered_json json_of(const BackendGraph& graph);

// Errors are recorded in the value's Failure.
BackendGraph read_graph(const json::Value& value);

}  // namespace attn::graph
