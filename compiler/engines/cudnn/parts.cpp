#include "compiler/lowering/strategy/parts.h"

#include <algorithm>
#include <iterator>

#include "compiler/engines/cudnn/fused.h"
#include "compiler/engines/cudnn/parts.h"
#include "compiler/engines/cudnn/strategies.h"
#include "compiler/lowering/common/checks.h"
#include "compiler/lowering/common/unsupported.h"

namespace attn::engines {
namespace {

// Merges the coverages of a part's launches into one: its classes may have a launch each.
std::vector<lowering::Coverage> of_parts(const std::vector<passes::Part>& parts,
                                         const std::vector<lowering::Launch>& launches,
                                         std::vector<lowering::Coverage> kernels) {
  std::vector<lowering::Coverage> all;
  std::size_t next = 0;
  for (const passes::Part& part : parts) {
    const bool folded = launches[next].view.classes == part.view.classes;
    lowering::Coverage coverage = std::move(kernels[next]);
    coverage.what = to_text(part);
    coverage.view = part.view;
    coverage.attention = part.attention;
    all.push_back(std::move(coverage));
    next += folded ? 1 : static_cast<std::size_t>(part.view.classes);
  }
  return all;
}

}  // namespace

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
  std::vector<lowering::Coverage> kernels;  // of launches
  double predicted_ms = partition.predicted_ms;
  for (const lowering::Launch& launch : launches) {
    ATTN_ASSIGN(Lowered lowered, fused(launch.attention, subject.context(), predicted_ms));
    programs.push_back({launch, std::move(lowered.program)});
    std::ranges::move(lowered.kernels, std::back_inserter(kernels));
  }
  Result<plan::Program> joined = backward
                                     ? lowering::joined_backward(attention, std::move(programs))
                                     : lowering::joined_forward(attention, std::move(programs));
  ATTN_RETURN_IF_ERROR(joined.status());
  Lowered lowered{std::move(*joined), predicted_ms};
  for (const passes::Part& part : partition.parts) lowered.parts.push_back(to_text(part));
  if (!backward) lowered.kernels = of_parts(partition.parts, launches, std::move(kernels));
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
