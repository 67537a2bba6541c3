#include <fmt/format.h>

#include <algorithm>

#include "runtime/graph/listing.h"
#include "runtime/plan/plan.h"

namespace attn::plan {

Signature signature_of(const Program& program, const Target& target, std::int64_t cudnn_version) {
  Signature signature;
  signature.text = fmt::format("attnc signature 1\ncudnn {}\ntarget {} sm {} {}\n{}", cudnn_version,
                               quoted(target.name), target.sm, quoted(target.device_json),
                               canonical_text(program));
  signature.hash = hash128(signature.text);
  return signature;
}

std::int64_t Plan::workspace_bytes() const {
  std::int64_t largest = 0;
  for (const CompiledStep& step : compiled) largest = std::max(largest, step.workspace_bytes);
  return largest;
}

}  // namespace attn::plan
