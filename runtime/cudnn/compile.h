// BackendGraph -> descriptors -> engine configs -> finalized plan, without a handle or a GPU.
//
// cuDNN may kill the process while it looks at a graph: call this in a worker (runtime/worker)
// unless the caller is one.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/cudnn/library.h"
#include "runtime/graph/backend_graph.h"
#include "runtime/plan/plan.h"

namespace attn::cudnn {

// What is about to be handed to cuDNN: kept by the worker's client so that a death can be placed.
struct Progress {
  std::string stage;  // "tensor", "operation", "operation graph", "heuristics A", "plan" ...
  int node = -1;      // index into BackendGraph::nodes, or -1
};
using ProgressSink = std::function<void(const Progress&)>;

// Tries the engine configs of heuristic mode A, then FALLBACK, in their order; the first that
// finalizes wins. `device_json` is a DEVICEPROP JSON (targets/). Errors: unsupported when every
// config was refused for lack of support (status 3000s) or none was offered; cudnn otherwise. The
// error's payload is JSON:
//   {"stage": "plan", "modes": [{"mode": "A", "configs": 3, "status": "..."}],
//    "configs": [{"mode": "A", "engine": 5, "knobs": {"24": 3}, "status": "NOT_SUPPORTED_...",
//                 "reason": "cuDNN's own words"}], "node": 7}
Result<plan::CompiledStep> compile(const Library& library, const graph::BackendGraph& graph,
                                   const std::string& device_json, const ProgressSink& progress);

// DEVICEPROP JSON of the CUDA device of the current context. Errors: cuda, cudnn.
Result<std::string> device_json_of_current_device(const Library& library);

}  // namespace attn::cudnn
