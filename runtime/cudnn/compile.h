// Compiles a BackendGraph: descriptors, engine configs, finalized plan. Needs neither a handle nor
// a GPU.
//
// cuDNN may crash the process while it examines a graph, so call this in a worker (runtime/worker).
#pragma once

#include <functional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/cudnn/api.h"
#include "runtime/cudnn/library.h"
#include "runtime/graph/backend_graph.h"
#include "runtime/plan/plan.h"

namespace attn::cudnn {

// The next call into cuDNN. The worker's client keeps it, to report where a worker died.
struct Progress {
  std::string stage;  // "tensor", "operation", "operation graph", "heuristics A", "plan" ...
  int node = -1;      // index into BackendGraph::nodes, or -1
};
using ProgressSink = std::function<void(const Progress&)>;

// Rejects a graph that this cuDNN version is known to compute wrongly on this GPU (known_bad.h).
// Otherwise tries the engine configs of heuristic mode A, then FALLBACK, in order; the first that
// finalizes is used. Configs of engines known to be wrong are skipped; if none is left, every
// engine is tried with default knobs (heuristic "NONE"). `device_json` is a DEVICEPROP JSON
// (targets/). Errors: invalid_argument if that JSON is invalid; unsupported if every config was
// rejected for lack of support (status 3000s) or none was offered; cudnn otherwise, also if cuDNN
// lacks a part of its installation (driver library, NVRTC, sublibrary), which it reports as "not
// supported" too. The error's payload is JSON:
//   {"stage": "plan", "modes": [{"mode": "A", "configs": 3, "status": "..."}],
//    "configs": [{"mode": "A", "offered": true, "engine": 5, "knobs": {"24": 3},
//                 "status": "NOT_SUPPORTED_...", "reason": "cuDNN's text"}], "node": 7}
// Configs that a heuristic considered but did not offer have "offered": false; if no config was
// offered, the stage is "heuristics". For a rejected tensor or operation the payload has its node,
// "call", "status" and "reason" instead of modes and configs; for a graph known to be wrong it has
// the stage "known bad", the row's name and the position in the spec.
Result<plan::CompiledStep> compile(const Library& library, const graph::BackendGraph& graph,
                                   const std::string& device_json, const ProgressSink& progress);

// The first engine config that the heuristics offer and that is not known to be wrong. Not
// finalized: workspace and plan are empty. Cheaper than compile(), but a config that is offered may
// still be rejected. Errors: as compile().
Result<plan::CompiledStep> offer(const Library& library, const graph::BackendGraph& graph,
                                 const std::string& device_json, const ProgressSink& progress);

// DEVICEPROP JSON of the CUDA device of the current context. Errors: cuda, cudnn.
Result<std::string> device_json_of_current_device(const Library& library);

// How far to go: until a config is offered, or until a plan is finalized.
enum class Depth : std::uint8_t { offer, plan };

// Does what offer() or compile() do, without the note on NVRTC.
Result<plan::CompiledStep> compile_graph(const Api& api, const graph::BackendGraph& graph,
                                         const std::string& device_json,
                                         const ProgressSink& progress, Depth depth = Depth::plan);

}  // namespace attn::cudnn
