// The state of a binding. Internal to runtime/execute.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/cuda/graph.h"
#include "runtime/execute/binding.h"
#include "runtime/execute/checks.h"
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
  // Makes that the binding's own workspace; the one before is kept if enqueued work, or a graph,
  // may use it.
  void own(cuda::DeviceBuffer buffer);
  // Moves to these bases. On error all stays as it was. Allocates nothing but variant packs.
  Status select(const Bases& bases);
  Status select_pack(const Bases& bases);
  // Does nothing for stream-ordered workspaces, where each execute selects.
  Status select_unless_pooled(std::span<void* const> addresses);
  bool is_selected(const Bases& bases) const;
  // Whether the addresses of these bases were checked, of those that are kept; and says so.
  bool is_checked(const Bases& bases);
  void note_checked(const Bases& bases);
  bool is_pooled() const;
  // Bytes of the workspace: with a schedule without those that it replaces.
  std::int64_t workspace_bytes() const;
  // The bases with these addresses, and the schedule.
  Bases bases(std::span<void* const> addresses, void* its_workspace) const;
  // On error the schedule stays as it was. An own workspace gets the size that is needed, unless it
  // is larger and work may use it.
  Status use(std::shared_ptr<const ScheduleState> other);
  Status fit_workspace();
  // Launches what makes a schedule, there. The executable must have one.
  Status make_schedule(const ScheduleMemory& there, void* stream);
  // Sees to it that a binding whose workspace is stream-ordered has one for graphs. Errors: cuda.
  Status own_one_for_graphs();
  // Allocates a workspace for the binding. Errors: cuda.
  Result<cuda::DeviceBuffer> allocate_workspace() const;
  struct Change;  // views.cpp
  class Trial;    // likewise
  Result<std::vector<Change>> changes_to(std::span<void* const> addresses,
                                         std::span<const std::int64_t* const> strides,
                                         const PointerClassifier& classify);
  // Replaces the error of an execute by the device fault that caused it, if any.
  Error explained(Error error) const;
  // Enqueues with the current pack, or with one for a workspace from the device's pool.
  Status run(void* stream);
  Status run_with(const cudnn::Session* session, void* stream);
  Status run_in_pool(void* stream);

  // The bases that arguments are of.
  struct Selected {
    bool is_any = false;
    std::vector<void*> tensors{};
    void* workspace = nullptr;
    ScheduleMemory schedule{};
  };

  std::shared_ptr<const ExecutableState> owner;
  std::optional<cudnn::Handles::Seat> seat;  // if there are steps of cuDNN's
  Scalars scalars;
  RowCopies copies;
  std::vector<plan::TensorInfo> bound;  // tensors with bound strides
  std::vector<Leading> leading;         // in the program's order
  std::vector<void*> tensors;           // likewise
  std::vector<void*> checked;           // likewise: the last ones that were
  std::vector<StepOperands> operands;
  std::size_t kept;                       // addresses, as passed to bind
  std::vector<KernelArguments> kernels;   // of the kernel steps among them
  std::optional<LaunchArguments> making;  // a caller's schedule; of the first launch
  Workspace::Kind workspace_kind = Workspace::Kind::owned;
  cuda::DeviceBuffer own_workspace;
  cuda::DeviceBuffer outgrown;  // the own workspace before, which work may use
  void* workspace = nullptr;
  bool has_run = false;
  std::shared_ptr<const ScheduleState> schedule;  // null: executes make their own
  Packs packs;
  Pack* current = nullptr;  // if there are steps of cuDNN's
  Selected selected;
  std::optional<cuda::Recording> recorded;  // last result of graph()
};

}  // namespace attn::execute
