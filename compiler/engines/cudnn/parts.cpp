#include "compiler/engines/cudnn/parts.h"

#include <algorithm>
#include <iterator>

#include "compiler/engines/cudnn/fused.h"
#include "compiler/engines/cudnn/lower_parts.h"
#include "compiler/engines/cudnn/strategies.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/unsupported.h"

namespace attn::engines {
namespace {

// Merges the coverages of a part's launches into one: its classes may have a launch each.
std::vector<Coverage> of_parts(const std::vector<Part>& parts, const std::vector<Launch>& launches,
                               std::vector<Coverage> kernels) {
  std::vector<Coverage> all;
  std::size_t next = 0;
  for (const Part& part : parts) {
    const bool folded = launches[next].view.classes == part.view.classes;
    Coverage coverage = std::move(kernels[next]);
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
  ATTN_RETURN_IF_ERROR(check_attention(attention));
  ATTN_RETURN_IF_ERROR(check_parts(attention, subject.context().backward()));
  if (subject.partition()) return subject.partition()->predicted_ms;
  return unsupported(attention.pos, "the mask has no parts");
}

Result<Lowered> in_parts(Subject& subject) {
  ATTN_RETURN_IF_ERROR(bound_of_parts(subject).status());
  const ir::Attention& attention = subject.attention();
  const bool backward = subject.context().backward();
  const Partition& partition = *subject.partition();
  ATTN_ASSIGN(const std::vector<Launch> launches, prepared(attention, partition.parts, backward));
  std::vector<PartProgram> programs;
  std::vector<Coverage> kernels;  // of launches
  double predicted_ms = partition.predicted_ms;
  for (const Launch& launch : launches) {
    ATTN_ASSIGN(Lowered lowered, fused(launch.attention, subject.context(), predicted_ms));
    programs.push_back({launch, std::move(lowered.program)});
    std::ranges::move(lowered.kernels, std::back_inserter(kernels));
  }
  Result<plan::Program> joined = backward ? joined_backward(attention, std::move(programs))
                                          : joined_forward(attention, std::move(programs));
  ATTN_RETURN_IF_ERROR(joined.status());
  Lowered lowered{std::move(*joined), predicted_ms};
  for (const Part& part : partition.parts) lowered.parts.push_back(to_text(part));
  if (!backward) lowered.kernels = of_parts(partition.parts, launches, std::move(kernels));
  return lowered;
}

namespace strategy {

Result<double> parts::bound(Subject& subject) {
  const ir::Attention& attention = subject.attention();
  ATTN_RETURN_IF_ERROR(subject.context().backward() ? check_gradients(attention)
                                                    : check_forward(attention));
  return bound_of_parts(subject);
}
Result<Lowered> parts::lower(Subject& subject) {
  ATTN_RETURN_IF_ERROR(bound(subject).status());
  return in_parts(subject);
}

}  // namespace strategy
}  // namespace attn::engines
