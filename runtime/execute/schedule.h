// A schedule that a caller makes once for the executes of many bindings, such as those of all
// layers of a model, which have the same lengths (plan::Schedule).
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/base/status.h"
#include "runtime/execute/executable.h"

namespace attn::execute {

struct ScheduleState;  // schedule_state.h, internal to runtime/execute

// What a schedule may do. All 0: what an execute does without one.
struct ScheduleSettings {
  // Most parts that the keys of a tile are divided into; 0: no limit, 1: none is divided.
  std::int64_t max_parts = 0;
  // Keys of a part, rounded down to whole blocks of keys, at least one; twice, three times, .. as
  // many where a tile would have more than 256 parts. Results of a sequence then do not depend on
  // the others. 0: parts are as long as balances the GPU.
  std::int64_t split_keys = 0;
  // Blocks of threads that attention leaves to other kernels.
  std::int64_t sm_margin = 0;
  // The most rows and keys of all sequences together, for the memory of parts of `split_keys` keys.
  // Rows may be 0: as many as the plan has. Neither is looked at without split_keys.
  std::int64_t capacity_rows = 0;
  std::int64_t capacity_keys = 0;
};

// How many of the plan's sequences there are, from the first on, and what keys they share.
struct SequenceCount {
  // An i32 in device memory, read when the schedule is made; it is the caller's.
  const std::int32_t* address = nullptr;
  std::int64_t number = kAll;  // if there is no address
  static constexpr std::int64_t kAll = -1;
  // Keys that all of them begin with, in the same pages; kBeside: as many as a second i32 at
  // `address` says. These are read once, as those of the first sequence, in whole blocks of keys.
  std::int64_t shared_keys = 0;
  static constexpr std::int64_t kBeside = -1;

  bool operator==(const SequenceCount&) const = default;
};

// Device memory with a schedule, and the options and the room for parts of tiles that go with it.
// Serves one thread at a time; copies share it. Executes that use one must not overlap each other
// or a build: they share the room for parts.
class Schedule {
 public:
  // Allocates by the executable's allocator, and may wait. Errors: unsupported if the executable
  // takes no schedule; invalid_argument, naming the setting; cuda.
  static Result<Schedule> make(const Executable& executable, const ScheduleSettings& settings = {});

  // Enqueues the kernel that makes the schedule from the lengths and params of `binding`, which
  // later executes on the stream then use. Reads nothing on the host, waits for nothing and
  // allocates nothing on the device; may be captured into a CUDA graph, the first time too: the
  // schedule and the binding must then outlive the graph's launches. One launch, but that an
  // address of the count, or a number of shared keys, is written to the device until it is known;
  // of more than 15 always. Errors: binding if the binding is of a plan with another schedule, or
  // the count's address is not of the device; invalid_argument for a count beyond the plan's, and
  // for shared keys with split_keys; unsupported for shared keys if the plan cannot read them once,
  // with the reason; cuda.
  Status build(Binding& binding, const SequenceCount& sequences, void* stream);

  // What did not fit when the schedule was last made: bits kScheduleTooManyParts (tiles stayed
  // undivided; results are right), kScheduleNotShared (sequences read shared keys themselves, since
  // some row does not see all of them, the first sequence does not have them, a length is too long
  // or memory too small; results are right) and kScheduleTooLong (results are not) of
  // plan/schedule_options.h; 0 before that. Waits for what `stream` was given before (null: for
  // the device). Errors: cuda.
  Result<std::uint32_t> flags(void* stream) const;

  std::int64_t slots() const;  // for parts of tiles
  std::int64_t device_bytes() const;

 private:
  friend class Binding;
  friend class Executable;
  explicit Schedule(std::shared_ptr<ScheduleState> state) : state_(std::move(state)) {}
  std::shared_ptr<ScheduleState> state_;
};

// The slots that parts of `settings.split_keys` keys take at most, where a sequence has at most
// these rows and keys. Tiles that are not divided take none, so that only sequences of more than
// split_keys keys count, which are at most capacity_keys / split_keys. One of n keys and r rows has
// ceil(r / tile_rows) tiles of each unit, of at most ceil(n / split_keys) parts. Over sequences
// these sum up to at most capacity_rows / tile_rows and capacity_keys / split_keys, plus one for
// each that counts. So the sum of their products is at most the smaller of "most tiles of a
// sequence, times all parts" and "most parts of a sequence, times all tiles".
std::int64_t slots_for(const plan::Schedule& schedule, const ScheduleSettings& settings,
                       std::int64_t most_rows, std::int64_t most_keys);

}  // namespace attn::execute
