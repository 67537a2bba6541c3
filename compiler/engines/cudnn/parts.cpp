#include "compiler/lowering/strategy/parts.h"

#include "compiler/engines/cudnn/fused.h"
#include "compiler/engines/cudnn/parts.h"
#include "compiler/engines/cudnn/strategies.h"
#include "compiler/lowering/common/checks.h"
#include "compiler/lowering/common/unsupported.h"

namespace attn::engines {

Result<double> bound_of_parts(Subject& subject) {
  const ir::Attention& attention = subject.attention();
  ATTN_RETURN_IF_ERROR(lowering::check_attention(attention));
  ATTN_RETURN_IF_ERROR(lowering::check_parts(attention, subject.context().backward()));
  if (subject.partition()) return subject.partition()->predicted_ms;
  return lowering::unsupported(attention.pos, "the mask has no parts");
}

Result<Lowered> in_parts(Subject& subject) {
  ATTN_RETURN_IF_ERROR(bound_of_parts(subject).status());
  const ir::Attention& attention = subject.attention();
  const bool backward = subject.context().backward();
  const passes::Partition& partition = *subject.partition();
  ATTN_ASSIGN(const std::vector<lowering::Launch> launches,
              lowering::prepared(attention, partition.parts, backward));
  std::vector<lowering::PartProgram> programs;
  double predicted_ms = partition.predicted_ms;
  for (const lowering::Launch& launch : launches) {
    ATTN_ASSIGN(Lowered lowered, fused(launch.attention, subject.context(), predicted_ms));
    programs.push_back({launch, std::move(lowered.program)});
  }
  Result<plan::Program> joined = backward
                                     ? lowering::joined_backward(attention, std::move(programs))
                                     : lowering::joined_forward(attention, std::move(programs));
  ATTN_RETURN_IF_ERROR(joined.status());
  Lowered lowered{std::move(*joined), predicted_ms};
  for (const passes::Part& part : partition.parts) lowered.parts.push_back(to_text(part));
  return lowered;
}

namespace strategy {

Result<double> parts::bound(Subject& subject) {
  const ir::Attention& attention = subject.attention();
  ATTN_RETURN_IF_ERROR(subject.context().backward() ? lowering::check_gradients(attention)
                                                    : lowering::check_forward(attention));
  return bound_of_parts(subject);
}
Result<Lowered> parts::lower(Subject& subject) {
  ATTN_RETURN_IF_ERROR(bound(subject).status());
  return in_parts(subject);
}

}  // namespace strategy
}  // namespace attn::engines
