// What attnc's own kernels of a plan are made of: tiles, stages, warps, blocks of the mask, and
// what each launch takes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "tools/cubin.h"
#include "tools/report.h"

namespace attn::tools {

struct ExplainedLaunch {
  plan::Launch launch;
  std::string what;                            // empty if this attnc does not know the kernel
  std::optional<KernelResources> resources{};  // as the plan's cubin says
};

// The launches of a kernel step.
struct ExplainedKernels {
  std::size_t step = 0;
  std::vector<ExplainedLaunch> launches;
  std::optional<plan::KernelFacts> facts{};  // of its attention kernel
};

// Explains the kernels of each kernel step of the plan.
std::vector<ExplainedKernels> explain_kernels(const plan::Plan& plan);

// A table of the launches, and lines on the attention kernel; indented below a line of the step.
std::string to_text(const ExplainedKernels& kernels);
Json to_json(const ExplainedKernels& kernels);

}  // namespace attn::tools
