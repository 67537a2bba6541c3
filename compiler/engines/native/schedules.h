// Schedules that the GPU makes of lengths (attn/schedule.cuh): where these decide what the forward
// computes, tiles, spans and parts follow from what a batch has. The sizes, the launch, and what it
// writes:
//
//   native.schedule  i32: header, spans, notes of tiles, items
//   native.options   i32: zeros (plan::ScheduleOptions), made once; a caller has others
//   native.parts     f32 [slots, ..]: what warps have of each part of a divided tile
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/engines/native/kernel.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines::native {

inline constexpr const char* kSchedule = "native.schedule";
inline constexpr const char* kParts = "native.parts";

// Sizes of a schedule: `workers` blocks of threads.
struct ScheduleSizes {
  std::int64_t workers = 1, batches = 1, tiles = 1, units = 1;
  std::int64_t slots = 2;  // parts of divided tiles

  // Elements of native.schedule for a slot: of an item; and of native.parts.
  static constexpr std::int64_t kWordsOfSlot = 4;
  static std::int64_t elements_of_slot(const Tile& tile);
  std::int64_t words() const;  // of native.schedule, for that many slots
  // Whether the kernel's arrays fit its memory, and its numbers their bits.
  bool fit() const;
};
ScheduleSizes schedule_sizes(const ir::Dims& dims, const Kernel& kernel);

// Constants by which work is divided (attn/schedule_maker.cuh), in blocks of keys.
struct ScheduleFigures {
  std::int64_t between = 0, merging = 0, least_span = 0, long_share = 0, turns = 1, least_part = 1;
};
ScheduleFigures schedule_figures(const Tile& tile);

// Why its items may not have keys that several sequences begin with (attn/forward_prefix.cuh), in
// words that follow "since"; empty if they may.
std::string why_not_shared(const ir::Attention& attention, const Kernel& kernel);

// The kernel. `parameters` and `object` are those of expressions (kernel.h).
// `shares_keys`: packed rows are those of `t_lengths_q`.
std::string schedule_kernel_text(const std::string& parameters, const std::string& object,
                                 bool shares_keys);

// Adds the launch, what it writes and its options. `inputs`: arguments of the parameters.
void add_schedule(const ScheduleSizes& sizes, const Kernel& kernel,
                  const std::vector<plan::KernelArgument>& inputs, plan::Program& program,
                  plan::KernelStep& step);

}  // namespace attn::engines::native
