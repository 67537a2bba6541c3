// The manifest of a plan as printed by commands.
#pragma once

#include "runtime/plan/plan.h"
#include "tools/report.h"

namespace attn::tools {

// plan::manifest_json, where `workspace_bytes` is all memory that an execute needs besides its
// tensors, including tensors computed at load, and `memory` lists its parts; and decision_json.
Json manifest_of(const plan::Plan& plan);

}  // namespace attn::tools
