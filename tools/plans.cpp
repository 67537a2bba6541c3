#include "tools/plans.h"

#include "tools/report.h"

namespace attn::tools {

Result<Plans> compile_plans(const Spec& spec, const driver::CompileOptions& how, bool gradients) {
  if (!gradients) {
    ATTN_ASSIGN(driver::Compiled forward,
                driver::compile(spec.attention, *spec.source, spec.bindings, how));
    tell_refusals(forward);
    return Plans{std::move(forward.plan), std::nullopt};
  }
  ATTN_ASSIGN(std::vector<driver::Compiled> pair,
              driver::compile_pair(spec.attention, *spec.source, spec.bindings, how));
  for (const driver::Compiled& compiled : pair) tell_refusals(compiled);
  return Plans{std::move(pair.front().plan), std::move(pair.back().plan)};
}

}  // namespace attn::tools
