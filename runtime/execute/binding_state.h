// What a binding is. Private to this room.
#pragma once

#include <memory>
#include <vector>

#include "runtime/execute/binding.h"
#include "runtime/execute/executable_state.h"
#include "runtime/execute/packs.h"

namespace attn::execute {

struct Binding::State {
  // The arguments must have been checked.
  State(std::shared_ptr<const ExecutableState> executable, cudnn::Handles::Seat its_seat,
        const Arguments& arguments);

  Memory memory();
  Status give_workspace(const Workspace& wanted);
  // Makes the pack for these bases the current one. After an error it is the one that it was.
  Status select(const Bases& bases);
  // Where every execute has another workspace, it selects by itself.
  Status select_unless_pooled(std::span<void* const> addresses);
  bool is_pooled() const;
  // Enqueue with the current pack; with one for a workspace from the device's pool.
  Status run(void* stream);
  Status run_in_pool(void* stream);

  std::shared_ptr<const ExecutableState> owner;
  cudnn::Handles::Seat seat;
  Scalars scalars;
  std::vector<void*> tensors;  // in the order of the program's
  std::vector<StepOperands> operands;
  Workspace::Kind workspace_kind = Workspace::Kind::owned;
  cuda::DeviceBuffer own_workspace;
  void* workspace = nullptr;
  Packs packs;
  Pack* current = nullptr;
};

}  // namespace attn::execute
