// What a binding is. Private to this room.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/cuda/graph.h"
#include "runtime/execute/binding.h"
#include "runtime/execute/executable_state.h"
#include "runtime/execute/packs.h"
#include "runtime/execute/row_copies.h"

namespace attn::execute {

struct Binding::State {
  // The arguments must have been checked, and the copies be of them.
  State(std::shared_ptr<const ExecutableState> executable, cudnn::Handles::Seat its_seat,
        const Arguments& arguments, RowCopies its_copies, std::size_t kept_addresses);

  Memory memory();
  Status give_workspace(const Workspace& wanted);
  void own(cuda::DeviceBuffer buffer);
  // Makes the pack for these bases the current one. After an error it is the one that it was.
  Status select(const Bases& bases);
  // Where every execute has another workspace, it selects by itself.
  Status select_unless_pooled(std::span<void* const> addresses);
  bool is_pooled() const;
  // Device memory for a workspace of its own. Errors: cuda.
  Result<cuda::DeviceBuffer> allocate_workspace() const;
  // The error of an execute, or the fault of the device that is behind it.
  Error explained(Error error) const;
  // Enqueue with the current pack; with one for a workspace from the device's pool.
  Status run(void* stream);
  Status run_in_pool(void* stream);

  std::shared_ptr<const ExecutableState> owner;
  cudnn::Handles::Seat seat;
  Scalars scalars;
  RowCopies copies;
  std::vector<void*> tensors;  // in the order of the program's
  std::vector<StepOperands> operands;
  Workspace::Kind workspace_kind = Workspace::Kind::owned;
  cuda::DeviceBuffer own_workspace;
  void* workspace = nullptr;
  Packs packs;
  Pack* current = nullptr;
  std::optional<cuda::Recording> recorded;  // what graph() gave last
};

}  // namespace attn::execute
