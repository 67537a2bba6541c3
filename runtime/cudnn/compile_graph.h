// compile() on a table of entry points, from a library or a test.
#pragma once

#include <string>

#include "runtime/cudnn/api.h"
#include "runtime/cudnn/compile.h"

namespace attn::cudnn {

// How far to go: until a config is offered, or until a plan is finalized.
enum class Depth : std::uint8_t { offer, plan };

// Does what offer() or compile() do, without the note on NVRTC.
Result<plan::CompiledStep> compile_graph(const Api& api, const graph::BackendGraph& graph,
                                         const std::string& device_json,
                                         const ProgressSink& progress, Depth depth = Depth::plan);

}  // namespace attn::cudnn
