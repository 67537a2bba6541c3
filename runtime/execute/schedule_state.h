// The state of a schedule. Internal to runtime/execute.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "runtime/cuda/memory.h"
#include "runtime/execute/executable_state.h"
#include "runtime/execute/schedule.h"

namespace attn::execute {

struct ScheduleState {
  // The options are those that the plan's kernel reads, at the beginning of `control`.
  void* options() const { return control.data(); }
  void* tensor() const { return static_cast<std::byte*>(control.data()) + option_bytes; }
  // For a kernel that makes the schedule, and for those that use it.
  ScheduleMemory for_making() const { return {tensor(), options(), parts.data()}; }
  ScheduleMemory for_using() const { return {tensor(), nullptr, parts.data()}; }

  std::shared_ptr<const ExecutableState> owner;
  std::int64_t slots = 0;
  std::size_t counter_bytes = 0;  // of the options, behind what the caller wants
  std::size_t option_bytes = 0;   // with the gap behind them
  cuda::DeviceBuffer control;     // the options, then the schedule
  cuda::DeviceBuffer parts;
  std::atomic<bool> was_built = false;  // or a graph that builds it was captured
};

// Whether executes of one may use what the other's first launch makes. Errors: binding.
Status check_same_schedule(const ExecutableState& one, const ExecutableState& other);

}  // namespace attn::execute
