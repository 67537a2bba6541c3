// compile() over a table of entry points, whichever library (or test) they come from.
#pragma once

#include <string>

#include "runtime/cudnn/api.h"
#include "runtime/cudnn/compile.h"

namespace attn::cudnn {

// How far to go: to a config that is offered, or to a finalized plan.
enum class Depth : std::uint8_t { offer, plan };

// As offer() or compile(), without the note on NVRTC.
Result<plan::CompiledStep> compile_graph(const Api& api, const graph::BackendGraph& graph,
                                         const std::string& device_json,
                                         const ProgressSink& progress, Depth depth = Depth::plan);

}  // namespace attn::cudnn
