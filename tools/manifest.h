// A plan file's manifest, as commands print it.
#pragma once

#include "runtime/plan/plan.h"
#include "tools/report.h"

namespace attn::tools {

// plan::manifest_json with `workspace_bytes` all that an execute takes beside its tensors, also what
// is made when the plan is loaded, and `memory` its parts.
Json manifest_of(const plan::Plan& plan);

}  // namespace attn::tools
