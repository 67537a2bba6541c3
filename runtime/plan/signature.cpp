#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "runtime/graph/listing.h"
#include "runtime/plan/plan_members.h"

namespace attn::plan {
namespace {

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kInternalAlignment - 1) / kInternalAlignment * kInternalAlignment;
}

std::set<std::string_view> made_once(const Program& program) {
  std::set<std::string_view> tensors;
  for (const DeriveStep* step : steps_of<DeriveStep>(program)) {
    if (step->once) tensors.insert(step->outputs.begin(), step->outputs.end());
  }
  return tensors;
}

// What a caller's schedule has in memory of its own.
std::set<std::string_view> of_schedule(const Program& program) {
  const KernelStep* step = scheduled_step(program);
  if (step == nullptr) return {};
  std::set<std::string_view> tensors = {step->schedule->tensor, step->schedule->parts};
  const std::string& options = step->schedule->options;
  const bool is_read_later =
      std::any_of(step->launches.begin() + 1, step->launches.end(),
                  [&options](const Launch& launch) { return names(launch, options); });
  if (!is_read_later) tensors.insert(options);
  return tensors;
}

}  // namespace

Signature signature_of(const Program& program, const Target& target, std::int64_t cudnn_version,
                       const std::string& nvrtc_version) {
  Signature signature;
  signature.text = fmt::format("attnc signature 1\ncudnn {}\nnvrtc {}\ntarget {}\nprogram {}\n",
                               cudnn_version, attn::quoted(nvrtc_version),
                               json::canonical_text(target), canonical_text(program));
  signature.hash = hash128(signature.text);
  return signature;
}

Signature signature_of(const Plan& plan) {
  return signature_of(plan.program, plan.target, plan.cudnn_version, plan.nvrtc_version);
}

InternalPlaces internal_places(const Program& program, bool once) {
  InternalPlaces places;
  const std::set<std::string_view> are_made_once = made_once(program);
  const std::set<std::string_view> are_scheduled = of_schedule(program);
  for (const bool scheduled : {false, true}) {
    for (const TensorInfo& tensor : program.internals) {
      if (are_made_once.contains(tensor.name) != once) continue;
      if (are_scheduled.contains(tensor.name) != scheduled) continue;
      const std::int64_t elements = std::accumulate(tensor.dims.begin(), tensor.dims.end(),
                                                    std::int64_t{1}, std::multiplies<>());
      places.offsets.emplace(tensor.name, places.bytes);
      places.bytes += aligned(elements * static_cast<std::int64_t>(size_of(tensor.dtype)));
    }
    if (!scheduled) places.bytes_without_schedule = places.bytes;
  }
  return places;
}

// Bytes of the workspace: without internal tensors, exactly what the largest step needs.
std::int64_t Plan::workspace_bytes() const {
  std::int64_t largest = 0;
  for (const CompiledStep& step : compiled) largest = std::max(largest, step.workspace_bytes);
  const std::int64_t internal = internal_places(program, false).bytes;
  return internal == 0 ? largest : aligned(largest) + internal;
}

}  // namespace attn::plan
