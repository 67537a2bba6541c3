#include "runtime/execute/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "runtime/base/ceil_div.h"
#include "runtime/cuda/stream.h"
#include "runtime/execute/binding_state.h"
#include "runtime/execute/schedule_state.h"
#include "runtime/plan/schedule_options.h"

namespace attn::execute {
namespace {

constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;  // of each setting

Status refused(std::string message) {
  return Status(ErrorCode::invalid_argument, std::move(message));
}

const plan::TensorInfo& internal(const plan::Program& program, const std::string& name) {
  return *std::ranges::find(program.internals, name, &plan::TensorInfo::name);
}

std::int64_t elements_of(const plan::Program& program, const std::string& name) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : internal(program, name).dims) elements *= extent;
  return elements;
}

Status check_settings(const ScheduleSettings& settings) {
  const std::pair<const char*, std::int64_t> numbers[] = {
      {"max_parts", settings.max_parts},
      {"split_keys", settings.split_keys},
      {"sm_margin", settings.sm_margin},
      {"capacity_rows", settings.capacity_rows},
      {"capacity_keys", settings.capacity_keys}};
  for (const auto& [name, number] : numbers) {
    if (number < 0 || number > kMost) {
      return refused(fmt::format("{} is {}; it must be 0 to 2^31 - 1", name, number));
    }
  }
  if (settings.split_keys == 0 || settings.capacity_keys > 0) return {};
  return refused("split_keys is given without capacity_keys: how many all sequences have together");
}

// The launch that computes what the schedule says, which has the parts.
const plan::Launch& using_launch(const plan::KernelStep& step) {
  const auto found = std::find_if(
      step.launches.begin() + 1, step.launches.end(),
      [&step](const plan::Launch& later) { return plan::names(later, step.schedule->parts); });
  return found != step.launches.end() ? *found : step.launches.back();
}

// Blocks of threads that are left to attention, in whole clusters; 0: all.
Result<std::int64_t> blocks_of(const plan::KernelStep& step, std::int64_t margin) {
  if (margin == 0) return 0;
  const auto volume = [](const plan::Extents& e) { return e[0] * e[1] * e[2]; };
  const plan::Launch& launch = using_launch(step);
  const std::int64_t cluster = volume(launch.cluster), all = volume(launch.grid);
  const std::int64_t left = (all - margin) / cluster * cluster;
  if (margin < all && left > 0) return left;
  return refused(fmt::format("sm_margin is {}, but attention has {} blocks of threads{}", margin,
                             all, cluster > 1 ? fmt::format(" in clusters of {}", cluster) : ""))
      .error();
}

Result<std::int64_t> slots_of(const ExecutableState& executable, const plan::Schedule& schedule,
                              const ScheduleSettings& settings) {
  if (settings.split_keys == 0) return schedule.slots;
  const std::int64_t slots = slots_for(schedule, settings, executable.rows, executable.keys);
  if (slots <= plan::kMostSlots) return std::max(schedule.slots, slots);
  return refused(
             fmt::format("parts of {} keys take up to {} slots for {} rows and {} keys, but there "
                         "are at most {}; longer parts, or fewer rows or keys, take fewer",
                         settings.split_keys, slots, settings.capacity_rows, settings.capacity_keys,
                         plan::kMostSlots))
      .error();
}

plan::ScheduleOptions options_of(const ScheduleSettings& settings, std::int64_t blocks,
                                 std::int64_t slots) {
  return {.sequences_at = nullptr,
          .sequences = 0,
          .most_parts = static_cast<int>(settings.max_parts),
          .split_keys = static_cast<int>(settings.split_keys),
          .blocks = static_cast<int>(blocks),
          .slots = static_cast<int>(slots),
          .shared_keys = 0};
}

// Records of addresses of a number of sequences, and of shared keys. One more is for all beyond.
constexpr std::size_t kCounts = 15;

// Memory for that many slots and for the records, zeroed.
Status allocate(ScheduleState& state) {
  const plan::Program& program = state.owner->program;
  const plan::Schedule& schedule = *plan::scheduled_step(program)->schedule;
  const Runtime& runtime = *state.owner->runtime;
  const auto bytes = [](std::int64_t words) { return static_cast<std::size_t>(words) * 4; };
  const std::size_t options = bytes(elements_of(program, schedule.options));
  const std::int64_t fixed =
      elements_of(program, schedule.tensor) - schedule.slots * schedule.slot_words;
  state.counter_bytes = options - sizeof(plan::ScheduleOptions);
  state.option_bytes = ceil_div(options, std::size_t{plan::kInternalAlignment}) *
                       static_cast<std::size_t>(plan::kInternalAlignment);
  state.counts.resize(kCounts + 1);
  state.records = static_cast<std::size_t>(schedule.sequences) + 2 + state.counts.size();
  const std::size_t tensor = bytes(fixed + state.slots * schedule.slot_words);
  ATTN_ASSIGN(state.control, cuda::DeviceBuffer::allocate(
                                 runtime.device(), state.records * state.option_bytes + tensor,
                                 runtime.allocator()));
  ATTN_ASSIGN(state.parts, cuda::DeviceBuffer::allocate(runtime.device(),
                                                        bytes(state.slots * schedule.slot_elements),
                                                        runtime.allocator()));
  return state.control.fill(0);
}

// Records with these options: that of all sequences, then those of each number.
Status upload(ScheduleState& state, plan::ScheduleOptions options) {
  std::vector<std::byte> bytes(state.records * state.option_bytes);
  for (std::size_t i = 0; i < state.records; ++i) {
    const bool is_number = i < state.records - state.counts.size();
    options.sequences = is_number ? static_cast<int>(i) : 0;
    std::memcpy(bytes.data() + i * state.option_bytes, &options, sizeof options);
  }
  return state.control.upload(bytes);
}

// The record of a count with an address or shared keys, which is kept for it unless there are too
// many.
std::size_t record_of(ScheduleState& state, const SequenceCount& count) {
  std::vector<ScheduleState::Count>& all = state.counts;
  std::size_t i = 0;
  while (i + 1 < all.size() && all[i].is_kept && all[i].of != count) ++i;
  if (i + 1 < all.size()) all[i].of = count, all[i].is_kept = true;
  return state.records - all.size() + i;
}

// Enqueues the words of the record that are the count, unless they are known to be there: what is
// captured is written when the graph is launched.
Status write_count(ScheduleState& state, std::size_t record, const SequenceCount& count,
                   void* stream) {
  ScheduleState::Count& its = state.counts[record + state.counts.size() - state.records];
  if (its.is_written) return {};
  const cuda::Device& device = state.owner->runtime->device();
  const auto bits = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(count.address));
  auto* const to = static_cast<std::byte*>(state.options(record));
  const auto write = [&](std::size_t offset, std::uint64_t word) {
    auto* const at = reinterpret_cast<std::uint32_t*>(to + offset);
    return cuda::fill_words(device, stream, at, static_cast<std::uint32_t>(word), 1);
  };
  const bool is_at_address = count.address != nullptr;
  const std::int64_t number = is_at_address ? 0 : count.number + 1;
  const std::int64_t shared =
      count.shared_keys == SequenceCount::kBeside ? plan::kScheduleSharedBeside : count.shared_keys;
  using Options = plan::ScheduleOptions;
  ATTN_RETURN_IF_ERROR(write(offsetof(Options, sequences_at), bits));
  ATTN_RETURN_IF_ERROR(write(offsetof(Options, sequences_at) + 4, bits >> 32));
  its.has_shared |= shared != 0;
  if (shared != 0 || (!its.is_kept && its.has_shared)) {  // else these are 0
    ATTN_RETURN_IF_ERROR(write(offsetof(Options, sequences), static_cast<std::uint64_t>(number)));
    ATTN_RETURN_IF_ERROR(write(offsetof(Options, shared_keys), static_cast<std::uint64_t>(shared)));
  }
  ATTN_ASSIGN(const bool is_captured, cuda::is_capturing(device, stream));
  its.is_written = its.is_kept && its.of == count && !is_captured;
  return {};
}

// Whether the kernels can read shared keys once.
Status check_shared_keys(const ScheduleState& state, const SequenceCount& count) {
  const plan::Schedule& schedule = *plan::scheduled_step(state.owner->program)->schedule;
  if (!schedule.shares_keys) {
    const std::string& why = schedule.unshared;
    return Status(ErrorCode::unsupported,
                  "keys that sequences share cannot be read once by this plan" +
                      (why.empty() ? ", which an earlier version compiled" : ", since " + why));
  }
  if (state.splits_keys) {
    return refused(
        "shared keys are given for a schedule with split_keys: results of a sequence would depend "
        "on how many the batch shares");
  }
  if (count.shared_keys == SequenceCount::kBeside) {
    return count.address != nullptr ? Status()
                                    : refused(
                                          "the number of shared keys is beside that of "
                                          "sequences, but this has no address");
  }
  if (count.shared_keys > 0 && count.shared_keys <= kMost) return {};
  return refused(
      fmt::format("the number of shared keys is {}; it must be 0 to 2^31 - 1, or -1: "
                  "beside the number of sequences",
                  count.shared_keys));
}

// Whether a kernel on the device can read an i32 there.
Status check_address(const char* number, const std::int32_t* address, const cuda::Device& device) {
  const auto wrong = [number](const std::string& what) {
    return Status(ErrorCode::binding, fmt::format("the number of {} is {}", number, what));
  };
  if (reinterpret_cast<std::uintptr_t>(address) % sizeof(*address) != 0) {
    return wrong("at an address that is not a multiple of 4 bytes");
  }
  ATTN_ASSIGN(const cuda::PointerInfo info, cuda::classify(address));
  if (info.kind == cuda::MemoryKind::managed) return {};
  if (info.kind == cuda::MemoryKind::device && info.device == device.ordinal()) return {};
  return wrong(fmt::format("in {}{} but must be in memory of CUDA device {}", to_string(info.kind),
                           info.device >= 0 ? fmt::format(" {}", info.device) : "",
                           device.ordinal()));
}

// The record of the options for so many sequences. Errors: those of Schedule::build.
Result<std::size_t> record_for(ScheduleState& state, const SequenceCount& sequences) {
  const std::int64_t most = plan::scheduled_step(state.owner->program)->schedule->sequences;
  if (sequences.shared_keys != 0) ATTN_RETURN_IF_ERROR(check_shared_keys(state, sequences));
  if (sequences.address == nullptr) {
    if (sequences.number < SequenceCount::kAll || sequences.number > most) {
      return refused(fmt::format("the number of sequences is {}; it must be 0 to {}, or -1 for all",
                                 sequences.number, most))
          .error();
    }
    return sequences.shared_keys == 0 ? static_cast<std::size_t>(sequences.number + 1)
                                      : record_of(state, sequences);
  }
  if (sequences.number != SequenceCount::kAll) {
    return refused("the number of sequences is given both as an address and as a number").error();
  }
  const auto known = std::ranges::find(state.counts, sequences, &ScheduleState::Count::of);
  if (known == state.counts.end()) {
    const cuda::Device& device = state.owner->runtime->device();
    ATTN_RETURN_IF_ERROR(check_address("sequences", sequences.address, device));
    if (sequences.shared_keys == SequenceCount::kBeside) {
      ATTN_RETURN_IF_ERROR(check_address("shared keys", sequences.address + 1, device));
    }
  }
  return record_of(state, sequences);
}

}  // namespace

std::int64_t slots_for(const plan::Schedule& schedule, const ScheduleSettings& settings,
                       std::int64_t most_rows, std::int64_t most_keys) {
  const std::int64_t split =
      std::max(schedule.tile_keys, settings.split_keys / schedule.tile_keys * schedule.tile_keys);
  const std::int64_t rows = settings.capacity_rows > 0
                                ? settings.capacity_rows
                                : std::min(kMost, schedule.sequences * most_rows);
  const std::int64_t limit =
      settings.max_parts > 0 ? settings.max_parts : std::int64_t{plan::kScheduleMostParts};
  const std::int64_t most_parts =
      std::min(limit, ceil_div(std::min(settings.capacity_keys, most_keys), split));
  if (most_parts <= 1) return 0;
  const std::int64_t divided = std::min(schedule.sequences, settings.capacity_keys / split);
  const std::int64_t parts = settings.capacity_keys / split + divided;
  const std::int64_t most_tiles = ceil_div(std::min(rows, most_rows), schedule.tile_rows);
  const std::int64_t tiles = rows / schedule.tile_rows + divided;
  // Both factors are below 2^33.
  const auto product = [](std::int64_t x, std::int64_t y) { return x > kMost / y ? kMost : x * y; };
  return product(schedule.units, std::min(product(most_tiles, parts), product(most_parts, tiles)));
}

Status check_same_schedule(const ExecutableState& one, const ExecutableState& other) {
  if (&one == &other) return {};
  const plan::KernelStep* step = plan::scheduled_step(one.program);
  const plan::KernelStep* second = plan::scheduled_step(other.program);
  const auto wrong = [](const char* what) {
    return Status(ErrorCode::binding,
                  fmt::format("the binding cannot use this schedule: {}", what));
  };
  if (one.runtime->device().ordinal() != other.runtime->device().ordinal()) {
    return wrong("it is on another device");
  }
  if (step == nullptr || second == nullptr) return wrong("its plan takes none");
  const bool same = step->schedule == second->schedule && step->source == second->source &&
                    step->launches[0] == second->launches[0] &&
                    using_launch(*step).grid == using_launch(*second).grid &&
                    elements_of(one.program, step->schedule->tensor) ==
                        elements_of(other.program, second->schedule->tensor) &&
                    elements_of(one.program, step->schedule->options) ==
                        elements_of(other.program, second->schedule->options);
  return same ? Status() : wrong("it is of a plan with other kernels or sizes");
}

Result<Schedule> Schedule::make(const Executable& executable, const ScheduleSettings& settings) {
  const plan::KernelStep* step = plan::scheduled_step(executable.program());
  if (step == nullptr) {
    return {ErrorCode::unsupported,
            "the executable takes no schedule: only a forward of attnc's own kernels whose lengths "
            "are bound may have one"};
  }
  ATTN_RETURN_IF_ERROR(check_settings(settings));
  auto state = std::make_shared<ScheduleState>();
  state->owner = executable.state_;
  state->splits_keys = settings.split_keys > 0;
  ATTN_ASSIGN(const std::int64_t blocks, blocks_of(*step, settings.sm_margin));
  ATTN_ASSIGN(state->slots, slots_of(*state->owner, *step->schedule, settings));
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(executable.device()));
  ATTN_RETURN_IF_ERROR(allocate(*state));
  const plan::ScheduleOptions options = options_of(settings, blocks, state->slots);
  ATTN_RETURN_IF_ERROR(upload(*state, options));
  return Schedule(std::move(state));
}

Status Schedule::build(Binding& binding, const SequenceCount& sequences, void* stream) {
  ScheduleState& state = *state_;
  Binding::State& bound = *binding.state_;
  ATTN_RETURN_IF_ERROR(check_same_schedule(*state.owner, *bound.owner));
  const cuda::Device& device = state.owner->runtime->device();
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(device));
  ATTN_ASSIGN(const std::size_t record, record_for(state, sequences));
  if (record >= state.records - state.counts.size()) {
    ATTN_RETURN_IF_ERROR(write_count(state, record, sequences, stream));
  }
  if (state.counter_bytes > 0) {
    void* const counters =
        static_cast<std::byte*>(state.options(record)) + sizeof(plan::ScheduleOptions);
    ATTN_RETURN_IF_ERROR(cuda::zero(device, stream, counters, state.counter_bytes));
  }
  ATTN_RETURN_IF_ERROR(bound.make_schedule(state.for_making(record), stream));
  state.built = record + 1;
  return {};
}

Result<std::uint32_t> Schedule::flags(void* stream) const {
  const cuda::Device& device = state_->owner->runtime->device();
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(device));
  ATTN_ASSIGN(const bool is_captured, cuda::is_capturing(device, stream));
  if (is_captured) {
    return {ErrorCode::binding,
            "flags of a schedule cannot be read while the stream is captured into a CUDA graph"};
  }
  std::uint32_t flags = 0;
  const void* const word =
      static_cast<const std::uint32_t*>(state_->tensor()) + plan::kScheduleFlagsWord;
  ATTN_RETURN_IF_ERROR(
      cuda::download(device, word, std::as_writable_bytes(std::span(&flags, 1)), stream));
  return flags;
}

std::int64_t Schedule::slots() const { return state_->slots; }

std::int64_t Schedule::device_bytes() const {
  return static_cast<std::int64_t>(state_->control.size() + state_->parts.size());
}

}  // namespace attn::execute
