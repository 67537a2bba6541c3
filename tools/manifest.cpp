#include "tools/manifest.h"

#include "runtime/plan/manifest.h"
#include "runtime/plan/memory.h"

namespace attn::tools {

Json manifest_of(const plan::Plan& plan) {
  Json manifest = plan::manifest_value(plan);
  const plan::Memory memory = plan::memory_of(plan);
  manifest["workspace_bytes"] = memory.total();
  manifest["memory"] = {{"cudnn", memory.cudnn},
                        {"between", memory.between},
                        {"once", memory.once},
                        {"counting", memory.iota}};
  manifest.update(decision_json(plan));
  if (!plan.choice.empty()) manifest["choice"] = choice_json(plan);
  return manifest;
}

}  // namespace attn::tools
