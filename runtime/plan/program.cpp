#include "runtime/plan/program.h"

#include <algorithm>
#include <array>

#include "runtime/plan/program_so_far.h"

namespace attn::plan {
namespace {

constexpr auto kRoles = std::to_array<std::string_view>({"query", "key", "value", "captured",
                                                         "output", "stats", "control", "internal",
                                                         "saved", "cotangent", "gradient", "amax"});

}  // namespace

std::int64_t iota_elements(const Program& program) {
  std::int64_t largest = 0;
  for (const CudnnStep* step : steps_of<CudnnStep>(program)) {
    for (const Operand& operand : step->operands) {
      const auto* iota = std::get_if<IotaOperand>(&operand.source);
      if (iota != nullptr) largest = std::max(largest, iota->count);
    }
  }
  return largest;
}

std::int64_t turns_of(const Step& step) {
  return std::visit([](const auto& each) { return each.turns; }, step);
}

std::vector<Run> runs_of(const Program& program) {
  std::vector<Run> runs;
  for (std::size_t first = 0; first < program.steps.size();) {
    const std::int64_t turns = turns_of(program.steps[first]);
    std::size_t end = first + 1;
    while (turns > 1 && end < program.steps.size() && turns_of(program.steps[end]) == turns) ++end;
    for (std::int64_t turn = 0; turn < turns; ++turn) {
      for (std::size_t step = first; step < end; ++step) runs.push_back({step, turn});
    }
    first = end;
  }
  return runs;
}

std::int64_t derived_elements(const Program& program, const DeriveStep& step) {
  if (step.amends > 0) return step.amends;
  std::int64_t total = 0;
  for (const auto* tensors : {&program.internals, &program.tensors}) {
    for (const TensorInfo& tensor : *tensors) {
      if (std::ranges::find(step.outputs, tensor.name) == step.outputs.end()) continue;
      total += elements(tensor.dims);
    }
  }
  return total;
}

std::string_view to_string(TensorRole role) { return kRoles[static_cast<std::size_t>(role)]; }

std::optional<TensorRole> parse_tensor_role(std::string_view text) {
  const auto found = std::ranges::find(kRoles, text);
  if (found == kRoles.end()) return std::nullopt;
  return static_cast<TensorRole>(found - kRoles.begin());
}

std::string_view to_string(Direction direction) {
  return direction == Direction::forward ? "forward" : "backward";
}

Direction direction_of(const Program& program) {
  const bool gradients = std::ranges::any_of(program.tensors, [](const TensorInfo& tensor) {
    return tensor.role == TensorRole::gradient;
  });
  return gradients ? Direction::backward : Direction::forward;
}

}  // namespace attn::plan
