// What `attnc explain` and `attnc report` find out of a spec or a plan file.
#pragma once

#include <optional>
#include <string>

#include "runtime/plan/bundle.h"
#include "tools/explanation.h"
#include "tools/spec.h"
#include "tools/target_option.h"

namespace attn::tools {

struct ExplainOptions {
  std::string target;  // empty: the local GPU, or an H200 if there is none
  std::string cudnn_folder;
  std::string lowering{planner::kAnyLowering};
  target::Rewrites rewrites;
  BuildLimits limits{};
  bool why_not = false;             // explain a refused spec too, with the reasons
  std::optional<bool> gradients{};  // absent: where the spec has a `grad` clause
};

// Explains an attention: with gradients what `attnc compile --direction both` makes. Prints to
// standard error which target is taken, if none is given and there is no local GPU. Errors: those
// of find_target and of driver::compile, but for a refusal with why_not.
Result<Explanation> explain_attention(const ExplainOptions& options, const Spec& spec);

// Explains the plans of one shape, as compiled. The mask may take the time of a build.
Explanation explain_plans(const Spec& spec, const plan::Bundle& bundle, bool gradients,
                          const BuildLimits& limits);

// Warns of what is known to need memory: without cuDNN its own part is not known.
void warn_of_memory(const Spec& spec, const Explanation& explanation, diag::Sink& sink);

}  // namespace attn::tools
