// The state of a schedule. Internal to runtime/execute.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/cuda/memory.h"
#include "runtime/execute/executable_state.h"
#include "runtime/execute/schedule.h"

namespace attn::execute {

// The options that the plan's kernel reads, once for each number of sequences and, beside these,
// for addresses of one and for shared keys, at the beginning of `control`. So builds need not write
// them, and a graph that was captured reads those that it was captured with. The schedule is
// behind.
struct ScheduleState {
  void* options(std::size_t record) const {
    return static_cast<std::byte*>(control.data()) + record * option_bytes;
  }
  void* tensor() const { return options(records); }
  // Those of the last build, or of all sequences if there was none.
  void* built_options() const {
    const std::size_t last = built;
    return options(last > 0 ? last - 1 : 0);
  }
  // For a kernel that makes the schedule, and for those that use it.
  ScheduleMemory for_making(std::size_t record) const {
    return {tensor(), options(record), parts.data()};
  }
  ScheduleMemory for_using() const { return {tensor(), nullptr, parts.data()}; }

  // A count that some record has: an address, or shared keys.
  struct Count {
    SequenceCount of{};
    bool is_kept = false;
    bool is_written = false;  // else each build writes it
    bool has_shared = false;  // whether a count that it had, maybe of a graph, had shared keys
  };

  std::shared_ptr<const ExecutableState> owner;
  std::int64_t slots = 0;
  std::size_t counter_bytes = 0;  // of the options, behind what the caller wants
  std::size_t option_bytes = 0;   // of a record, with the gap behind it
  std::size_t records = 0;        // for all sequences, for 0, 1, .., and those of `counts`
  std::vector<Count> counts{};    // of the last records; the last one is for any
  bool splits_keys = false;       // whether results of a sequence must not depend on others
  cuda::DeviceBuffer control;     // records of options, then the schedule
  cuda::DeviceBuffer parts;
  std::atomic<std::size_t> built = 0;  // record + 1 of the last build, captured ones too; 0: none
};

// Whether executes of one may use what the other's first launch makes. Errors: binding.
Status check_same_schedule(const ExecutableState& one, const ExecutableState& other);

}  // namespace attn::execute
