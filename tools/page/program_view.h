// The program of one direction as a view of the page.
#pragma once

#include "tools/explanation.h"
#include "tools/report.h"

namespace attn::tools::page {

// "choice": the strategies with their times; "steps": graphs and kernels; "tensors", "internals",
// "params"; "workspace". Where there is no program or no plan, "refusal" or "unknown" says why.
Json program_view(const ExplainedProgram& program, const std::string& name,
                  const std::string& why_not_compiled);

}  // namespace attn::tools::page
