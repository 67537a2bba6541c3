// The state of a binding. Internal to runtime/execute.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/cuda/graph.h"
#include "runtime/execute/binding.h"
#include "runtime/execute/executable_state.h"
#include "runtime/execute/packs.h"
#include "runtime/execute/row_copies.h"
#include "runtime/execute/schedule_state.h"

namespace attn::execute {

struct Binding::State {
  // The arguments must have been checked, and `its_copies` made from them.
  State(std::shared_ptr<const ExecutableState> executable,
        std::optional<cudnn::Handles::Seat> its_seat, const Arguments& arguments,
        RowCopies its_copies, std::size_t kept_addresses);

  Memory memory();
  Status give_workspace(const Workspace& wanted);
  void own(cuda::DeviceBuffer buffer);
  // Makes the pack for these bases the current one. On error the current pack stays.
  Status select(const Bases& bases);
  // Does nothing for stream-ordered workspaces, where each execute selects.
  Status select_unless_pooled(std::span<void* const> addresses);
  bool is_pooled() const;
  // The bases with these addresses, and the schedule.
  Bases bases(std::span<void* const> addresses, void* its_workspace) const;
  // Launches what makes a schedule, there. The executable must have one.
  Status make_schedule(const ScheduleMemory& there, void* stream) const;
  // Allocates a workspace for the binding. Errors: cuda.
  Result<cuda::DeviceBuffer> allocate_workspace() const;
  // Replaces the error of an execute by the device fault that caused it, if any.
  Error explained(Error error) const;
  // Enqueues with the current pack, or with one for a workspace from the device's pool.
  Status run(void* stream);
  Status run_with(const cudnn::Session* session, void* stream);
  Status run_in_pool(void* stream);

  std::shared_ptr<const ExecutableState> owner;
  std::optional<cudnn::Handles::Seat> seat;  // if there are steps of cuDNN's
  Scalars scalars;
  RowCopies copies;
  std::vector<plan::TensorInfo> bound;  // tensors with bound strides
  std::vector<Leading> leading;         // in the program's order
  std::vector<void*> tensors;           // likewise
  std::vector<StepOperands> operands;
  Workspace::Kind workspace_kind = Workspace::Kind::owned;
  cuda::DeviceBuffer own_workspace;
  void* workspace = nullptr;
  std::shared_ptr<const ScheduleState> schedule;  // null: executes make their own
  Packs packs;
  Pack* current = nullptr;
  std::optional<cuda::Recording> recorded;  // last result of graph()
};

}  // namespace attn::execute
