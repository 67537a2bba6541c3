// Builds cuDNN descriptors from a BackendGraph, with the attributes and shapes that cuDNN's fused
// engines match. Needs neither a handle nor a GPU.
#pragma once

#include <functional>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/cudnn/compile.h"
#include "runtime/cudnn/descriptor.h"
#include "runtime/graph/backend_graph.h"

namespace attn::cudnn {

struct BuiltGraph {
  std::vector<Descriptor> parts;  // tensors, settings and operations that `graph` refers to
  Descriptor graph;               // finalized OPERATIONGRAPH
};

// Reports progress before each tensor (stage "tensor", with the first node that uses it), each
// operation and the graph. Errors name the node, and add "stage" and "node" to the payload of
// call_error().
Result<BuiltGraph> build_graph(const Api& api, const graph::BackendGraph& graph,
                               const ProgressSink& progress);

}  // namespace attn::cudnn
