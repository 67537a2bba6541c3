#include "runtime/plan/memory.h"

#include <algorithm>

namespace attn::plan {

std::int64_t Memory::total() const {
  const std::int64_t aligned =
      (cudnn + kInternalAlignment - 1) / kInternalAlignment * kInternalAlignment;
  return (between == 0 ? cudnn : aligned + between) + once + iota;
}

Memory memory_of(const Program& program) {
  Memory memory;
  memory.between = internal_places(program, false).bytes;
  memory.once = internal_places(program, true).bytes;
  memory.iota = iota_elements(program) * static_cast<std::int64_t>(size_of(DType::i32));
  return memory;
}

Memory memory_of(const Plan& plan) {
  Memory memory = memory_of(plan.program);
  for (const CompiledStep& step : plan.compiled) {
    memory.cudnn = std::max(memory.cudnn, step.workspace_bytes);
  }
  return memory;
}

}  // namespace attn::plan
