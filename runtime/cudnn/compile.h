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

// A graph that this version of cuDNN is known to compute wrongly on this GPU (known_bad.h) is
// refused. Otherwise tries the engine configs of heuristic mode A, then FALLBACK, in their order;
// the first that finalizes wins. Those of engines known to be wrong are passed over; if that leaves
// nothing, every engine is tried with its default knobs (heuristic "NONE"). `device_json` is a
// DEVICEPROP JSON (targets/). Errors: invalid_argument when that JSON is not one; unsupported when
// every config was refused for lack of support (status 3000s) or none was offered; cudnn otherwise,
// also when cuDNN lacks something of its installation (driver library, NVRTC, sublibrary), which it
// calls "not supported" too. The error's payload is JSON:
//   {"stage": "plan", "modes": [{"mode": "A", "configs": 3, "status": "..."}],
//    "configs": [{"mode": "A", "offered": true, "engine": 5, "knobs": {"24": 3},
//                 "status": "NOT_SUPPORTED_...", "reason": "cuDNN's own words"}], "node": 7}
// Configs that a heuristic looked at but did not offer are listed with "offered": false; when no
// config was offered, the stage is "heuristics". A tensor or operation that is refused has its
// node, "call", "status" and "reason" instead of modes and configs; a graph that is known to go
// wrong the stage "known bad", the row's name and the place in the spec.
Result<plan::CompiledStep> compile(const Library& library, const graph::BackendGraph& graph,
                                   const std::string& device_json, const ProgressSink& progress);

// The first engine config that the heuristics offer and nothing is known against, not finalized:
// workspace and plan are empty. Cheaper than compile(), and less sure: an offered config may still
// be refused. Errors: as compile().
Result<plan::CompiledStep> offer(const Library& library, const graph::BackendGraph& graph,
                                 const std::string& device_json, const ProgressSink& progress);

// DEVICEPROP JSON of the CUDA device of the current context. Errors: cuda, cudnn.
Result<std::string> device_json_of_current_device(const Library& library);

}  // namespace attn::cudnn
