#include "runtime/ranks/distributed.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/ranks/agree.h"
#include "runtime/ranks/distributed_state.h"
#include "runtime/ranks/family.h"
#include "runtime/ranks/program_json.h"

namespace attn::ranks {
namespace {

using plan::Direction;
constexpr Direction kDirections[] = {Direction::forward, Direction::backward};

const std::string& plan_of(const Part& part, Direction direction) {
  return direction == Direction::backward ? part.backward : part.forward;
}

Status check_file(const plan::Family& family) {
  if (!family.ranks.empty()) return {};
  return Error{ErrorCode::invalid_argument,
               "the file is not of several ranks",
               {"`attnc compile --ranks N` writes such files"}};
}

// Larger alignments than a tensor is proposed with, where a plan reads it in place.
void align(Side& side, const Program& program) {
  for (std::size_t i = 0; i < side.parts.size(); ++i) {
    if (!side.parts[i]) continue;
    for (const plan::TensorInfo& tensor : side.parts[i]->program().tensors) {
      for (plan::TensorInfo& home : side.tensors) {
        const auto renamed = program.parts[i].renamed.find(home.name);
        const bool is_it = renamed == program.parts[i].renamed.end()
                               ? home.name == tensor.name
                               : renamed->second == tensor.name;
        if (is_it) home.alignment = std::max(home.alignment, tensor.alignment);
      }
    }
  }
}

}  // namespace

std::vector<const plan::Program*> Side::programs() const {
  std::vector<const plan::Program*> programs;
  for (const auto& part : parts) programs.push_back(part ? &part->program() : nullptr);
  return programs;
}

std::int64_t Side::workspace_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& part : parts) {
    if (part) bytes = std::max(bytes, part->workspace_bytes());
  }
  return bytes;
}

DistributedState::~DistributedState() {
  cuda::Scope scope;
  if (exchanges && scope.enter(device).ok()) static_cast<void>(exchanges->synchronize().ok());
}

Status DistributedState::prepare(execute::ExecutableCache& executables,
                                 const Result<plan::Family>& family,
                                 const DistributedOptions& options) {
  if (!family.ok()) return family.error();
  ATTN_RETURN_IF_ERROR(check_file(*family));
  ATTN_ASSIGN(division, parse(family->ranks, transport->rank()));
  const auto ranks = static_cast<int>(division.ranks.size());
  if (ranks != transport->ranks()) {
    return Status(ErrorCode::invalid_argument,
                  fmt::format("the file is of {} ranks, but the communicator has {}", ranks,
                              transport->ranks()));
  }
  if (division.only >= 0 && division.only != transport->rank()) {
    return Status(ErrorCode::invalid_argument,
                  fmt::format("the file has the plans of rank {} alone, but this is rank {}",
                              division.only, transport->rank()));
  }
  ATTN_RETURN_IF_ERROR(check_family(division, *family));
  ATTN_ASSIGN(kernels, Kernels::load(device, family->kernels));
  if (options.forward && !division.forward.empty())
    ATTN_RETURN_IF_ERROR(load(side(Direction::forward), Direction::forward, executables, *family));
  if (options.backward && !division.backward.empty())
    ATTN_RETURN_IF_ERROR(
        load(side(Direction::backward), Direction::backward, executables, *family));
  if (!sides[0].is_loaded && !sides[1].is_loaded)
    return Status(ErrorCode::invalid_argument, "the file has no plans of the direction");
  ATTN_RETURN_IF_ERROR(allocate());
  ATTN_ASSIGN(exchanges, cuda::Stream::create(device, cuda::Stream::Priority::high));
  ATTN_ASSIGN(watch, Watch::start(device, *transport, options.timeout, options.lost));
  return {};
}

Status DistributedState::load(Side& side, Direction direction,
                              execute::ExecutableCache& executables, const plan::Family& family) {
  side.parts.resize(program().parts.size());
  for (std::size_t i = 0; i < side.parts.size(); ++i) {
    const std::string& name = plan_of(program().parts[i], direction);
    if (name.empty()) continue;
    const auto found = std::ranges::find_if(family.parts.plans, [&](const plan::Plan& plan) {
      return plan.spec_name == name && plan::direction_of(plan.program) == direction;
    });
    if (found == family.parts.plans.end()) {
      return Status(ErrorCode::invalid_argument,
                    fmt::format("the file lacks the plans of rank {}", transport->rank()));
    }
    ATTN_ASSIGN(side.parts[i], executables.get(*found));
  }
  side.tensors = home_tensors(division, program(), direction);
  align(side, program());
  side.is_loaded = true;
  return {};
}

Status DistributedState::allocate() {
  std::int64_t bytes = 0;
  for (const Direction direction : kDirections) {
    const Side& side = this->side(direction);
    if (!side.is_loaded) continue;
    ATTN_ASSIGN(const Schedule schedule,
                schedule_of({division, program(), direction, side.tensors, side.programs()}));
    ATTN_RETURN_IF_ERROR(check_counts(schedule));
    bytes = std::max(bytes, schedule.memory_bytes + side.workspace_bytes());
  }
  ATTN_ASSIGN(memory,
              cuda::DeviceBuffer::allocate(device, static_cast<std::size_t>(bytes), allocator));
  return {};
}

Result<Distributed> Distributed::open(execute::ExecutableCache& executables,
                                      const Result<plan::Family>& family,
                                      std::unique_ptr<Transport> transport,
                                      const DistributedOptions& options) {
  auto state = std::make_shared<DistributedState>(executables.runtime(), std::move(transport));
  cuda::Scope scope;
  Status prepared = scope.enter(state->device);
  // The others must hear of it, whatever happens here.
  try {
    if (prepared.ok()) prepared = state->prepare(executables, family, options);
  } catch (const std::bad_alloc&) {
    prepared = Status(ErrorCode::internal, "out of host memory");
  } catch (const std::exception& error) {
    prepared = Status(ErrorCode::internal, error.what());
  }
  ATTN_RETURN_IF_ERROR(agree(*state->transport, state->division.family, prepared,
                             static_cast<int>(options.timeout.count())));
  return Distributed(std::move(state));
}

const Division& Distributed::division() const { return state_->division; }
const Program& Distributed::program() const { return state_->program(); }
const cuda::Device& Distributed::device() const { return state_->device; }
bool Distributed::has(Direction direction) const { return state_->side(direction).is_loaded; }

const std::vector<plan::TensorInfo>& Distributed::tensors(Direction direction) const {
  return state_->side(direction).tensors;
}

const std::vector<plan::ParamInfo>& Distributed::params(Direction direction) const {
  static const std::vector<plan::ParamInfo> kNone;
  return has(direction) ? state_->division.params : kNone;
}

std::int64_t Distributed::device_bytes() const {
  auto bytes = static_cast<std::int64_t>(state_->memory.size());
  for (const Side& side : state_->sides) {
    for (const auto& part : side.parts) bytes += part ? part->device_bytes() : 0;
  }
  return bytes;
}

Status Distributed::status() const { return state_->watch->status(); }

void Distributed::abort(std::string why) const {
  state_->watch->fail({ErrorCode::nccl, std::move(why)});
}

}  // namespace attn::ranks
