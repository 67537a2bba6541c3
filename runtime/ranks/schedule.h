// What one rank enqueues for one direction, with addresses that are still to be filled in. Made on
// the host from the file alone: a pure function.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/program.h"
#include "runtime/ranks/places.h"
#include "runtime/ranks/program.h"

namespace attn::ranks {

// Rows from one tensor to another with elements of the same size. Strides in elements.
struct Copy {
  Address from, to;
  Strides from_strides, to_strides;
  std::int64_t element_bytes = 1, batches = 1, heads = 1, rows = 1, width = 1;
  Address pairs{};  // i32[rows][2], from which row to which; nothing: row i to row i

  bool operator==(const Copy&) const = default;
};

// What a merge combines: the values (o or a gradient), then statistics by these names.
inline constexpr std::string_view kStatistics[] = {
    "lse", "max", "sum_exp", "max_with_sink", "sum_exp_with_sink", "lse_without_sink"};
inline constexpr std::size_t kSlots = 1 + std::size(kStatistics);

struct Slot {
  Address at{};  // nothing: the tensor is not there
  Strides strides{};

  bool operator==(const Slot&) const = default;
};
struct MergePlace {
  std::array<Slot, kSlots> slots;
  DType dtype = DType::f32;  // of the values
  Interval heads;

  bool operator==(const MergePlace&) const = default;
};

// A launch of attn_ranks_merge (ranks_parameters.h). `places` are in messages and parts; `home` is
// what the caller binds.
struct Merge {
  MergePlace home;
  std::vector<MergePlace> places;
  Address first, entries;        // i32[items + 1], i32[..][2]
  Address lengths{}, numbers{};  // with padding to clear
  std::int64_t rows = 0, batches = 1, width = 1;
  Interval heads;  // that are written
  bool weighted = false;
  bool uniform = false;

  bool operator==(const Merge&) const = default;
};

// A tensor of a message.
struct PlacedPiece {
  int peer = 0;
  Address at;
  std::int64_t bytes = 0;

  bool operator==(const PlacedPiece&) const = default;
};

struct PlacedExchange {
  std::vector<PlacedPiece> sends, receives;

  bool empty() const { return sends.empty() && receives.empty(); }
};

struct StageSchedule {
  std::vector<Copy> packs;  // before the exchange
  PlacedExchange exchange;
  std::vector<Copy> early, late;  // into parts' inputs: before the exchange has ended, and after
  std::vector<std::size_t> parts;
};

struct Schedule {
  std::vector<StageSchedule> stages;
  // For each part, the addresses of its plan's tensors in their order; empty if the part has no
  // plan of this direction.
  std::vector<std::vector<Address>> parts;
  // The last stage that something arrives for or leaves in, or whose parts give something to
  // messages. Then `outgoing` is merged and `results` are exchanged, beside the stages after it.
  std::size_t results_after = 0;
  std::vector<Merge> outgoing;  // results of parts into messages
  PlacedExchange results;
  // What goes into the caller's tensors when all parts are computed: statistics of rows that one
  // part alone has, and merges of rows without messages; and merges with them.
  std::vector<Copy> statistics;
  std::vector<Merge> early, late;
  // Gradients of learned tensors: `sums` of this rank's parts as f32, which all ranks add up, and
  // then `learned` into the caller's tensors.
  std::vector<Merge> sums, learned;
  Address sum;
  std::int64_t sum_count = 0;

  std::int64_t memory_bytes = 0;
  std::vector<std::int32_t> table;
};

struct ScheduleInputs {
  const Division& division;
  const Program& program;
  plan::Direction direction = plan::Direction::forward;
  // Tensors that this rank's caller binds, in the order of the division, with the strides that it
  // binds.
  const std::vector<plan::TensorInfo>& home;
  std::vector<const plan::Program*> parts;  // null: no plan of this direction
};

// Errors: plan_damaged if plans do not fit the parts, or the program does not fit the division.
Result<Schedule> schedule_of(const ScheduleInputs& inputs);

// The tensors that a rank's caller binds, with dense strides: bshd, statistics [B, H, rows].
std::vector<plan::TensorInfo> home_tensors(const Division& division, const Program& program,
                                           plan::Direction direction);

}  // namespace attn::ranks
