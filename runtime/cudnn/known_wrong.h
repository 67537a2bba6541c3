// Engines that cuDNN offers for a graph and that then compute something else. Each rule was found
// by comparing with the reference on a device, and names the run that shows it.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/graph/backend_graph.h"

namespace attn::cudnn {

// Why this engine must not run this graph; empty when nothing is known against it.
std::string_view known_wrong(const graph::BackendGraph& graph, std::int64_t engine);

}  // namespace attn::cudnn
