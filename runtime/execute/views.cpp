// Changes the strides with which tensors of a binding are bound.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/execute/binding_state.h"
#include "runtime/execute/checks.h"
#include "runtime/graph/listing.h"

namespace attn::execute {

// Other strides of a tensor.
struct Binding::State::Change {
  plan::TensorInfo* bound = nullptr;
  Leading* leading = nullptr;
  std::vector<std::int64_t> strides;

  // Operands point to the strides of the tensor, which stay in their place; those in steps come
  // with a map, and are made again with it.
  void swap() {
    std::ranges::swap_ranges(bound->strides, strides);
    leading->stride = bound->strides[0];
  }
};

namespace {

bool has_map_of(const plan::Program& program, const std::string& tensor) {
  for (const plan::KernelStep* step : plan::steps_of<plan::KernelStep>(program)) {
    for (const plan::Launch& launch : step->launches) {
      for (const plan::KernelArgument& argument : launch.arguments) {
        const auto* map = std::get_if<plan::TensorMapArgument>(&argument);
        if (map != nullptr && map->tensor.name == tensor) return true;
      }
    }
  }
  return false;
}

}  // namespace

// Other strides that the binding has until the end, unless they are kept.
class Binding::State::Trial {
 public:
  Trial(State& state, std::vector<Change> changes) : state_(state), changes_(std::move(changes)) {
    swap_strides();
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  ~Trial() {
    if (is_kept_) return;
    swap_strides();
    if (before_) swap(*before_);
  }

  bool changes_maps() const {
    return std::ranges::any_of(changes_, [this](const Change& each) {
      return has_map_of(state_.owner->program, each.bound->name);
    });
  }
  // Makes the launches again, with maps of these strides.
  void make_launches() {
    Launches made;
    made.operands = operands_of(state_.owner->program, state_.memory());
    made.kernels = arguments_of(made.operands, state_.kept);
    swap(before_.emplace(std::move(made)));
  }
  void keep() { is_kept_ = true; }

 private:
  struct Launches {
    std::vector<StepOperands> operands{};
    std::vector<KernelArguments> kernels{};
    std::optional<LaunchArguments> making{};
    Selected selected{};
  };
  void swap_strides() {
    for (Change& each : changes_) each.swap();
  }
  void swap(Launches& with) {
    std::swap(with.operands, state_.operands);
    std::swap(with.kernels, state_.kernels);
    std::swap(with.making, state_.making);
    std::swap(with.selected, state_.selected);
  }

  State& state_;
  std::vector<Change> changes_;
  std::optional<Launches> before_;
  bool is_kept_ = false;
};

// Strides that differ from those that are bound, checked.
Result<std::vector<Binding::State::Change>> Binding::State::changes_to(
    std::span<void* const> addresses, std::span<const std::int64_t* const> strides,
    const PointerClassifier& classify) {
  const plan::Program& program = owner->program;
  const int device = owner->runtime->device().ordinal();
  std::vector<Change> changes;
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (strides[i] == nullptr) continue;
    const plan::TensorInfo& tensor = program.tensors[i];
    const auto known = std::ranges::find(bound, tensor.name, &plan::TensorInfo::name);
    if (known == bound.end()) {
      return {ErrorCode::binding,
              fmt::format("tensor '{}' has the strides of the plan, which does not bind them",
                          escaped(tensor.name))};
    }
    const TensorView view{
        addresses[i], known->dtype, known->dims, {strides[i], strides[i] + known->dims.size()}};
    std::vector<std::int64_t> wanted = bound_tensor(program, tensor, view).strides;
    if (wanted == known->strides) continue;
    ATTN_RETURN_IF_ERROR(check_tensor(program, tensor, view, device, classify));
    changes.push_back({&*known, &leading[i], std::move(wanted)});
  }
  return changes;
}

Status Binding::set_views(std::span<void* const> addresses,
                          std::span<const std::int64_t* const> strides, Check check) {
  State& state = *state_;
  const plan::Program& program = state.owner->program;
  const std::size_t count = program.tensors.size();
  if (addresses.size() != count || strides.size() != count) {
    return Status(ErrorCode::binding,
                  fmt::format("{} addresses and {} strides for the plan's {} tensors",
                              addresses.size(), strides.size(), count));
  }
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(state.owner->runtime->device()));
  ATTN_ASSIGN(auto changes,
              state.changes_to(addresses, strides,
                               check == Check::yes ? cuda::classify : PointerClassifier()));
  State::Trial trial(state, std::move(changes));
  if (trial.changes_maps()) trial.make_launches();
  ATTN_RETURN_IF_ERROR(set_addresses(addresses, check));
  trial.keep();
  return {};
}

}  // namespace attn::execute
