// The state of a Distributed. Internal to runtime/ranks.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/cuda/memory.h"
#include "runtime/cuda/stream.h"
#include "runtime/execute/executable.h"
#include "runtime/ranks/distributed.h"
#include "runtime/ranks/kernels.h"
#include "runtime/ranks/watch.h"

namespace attn::ranks {

// One direction of a rank.
struct Side {
  bool is_loaded = false;
  std::vector<plan::TensorInfo> tensors;                  // with the strides that are proposed
  std::vector<std::optional<execute::Executable>> parts;  // nothing: no plan of this direction

  std::vector<const plan::Program*> programs() const;
  std::int64_t workspace_bytes() const;  // that the parts share, one after the other
};

// Members are destroyed last to first: the watch before the transport.
struct DistributedState {
  DistributedState(const execute::Runtime& its_runtime, std::unique_ptr<Transport> its_transport)
      : device(its_runtime.device()),
        allocator(its_runtime.allocator()),
        transport(std::move(its_transport)) {}
  ~DistributedState();  // waits for exchanges
  DistributedState(const DistributedState&) = delete;
  DistributedState& operator=(const DistributedState&) = delete;

  // Everything that needs no other rank. Errors: those of Distributed::open.
  Status prepare(execute::ExecutableCache& executables, const Result<plan::Family>& family,
                 const DistributedOptions& options);
  const Program& program() const {
    return division.ranks[static_cast<std::size_t>(transport->rank())];
  }
  Side& side(plan::Direction direction) { return sides[static_cast<std::size_t>(direction)]; }
  const Side& side(plan::Direction direction) const {
    return sides[static_cast<std::size_t>(direction)];
  }

  cuda::Device device;
  cuda::AllocatorPointer allocator;
  std::unique_ptr<Transport> transport;
  Division division;
  std::array<Side, 2> sides;  // by direction
  std::optional<Kernels> kernels;
  cuda::DeviceBuffer memory;  // of messages, parts and their workspace
  std::optional<cuda::Stream> exchanges;
  std::unique_ptr<Watch> watch;
  // Tensors whose values were those that the file was made for, the last ones first.
  struct Compared {
    std::string name;
    const void* data = nullptr;
    std::vector<std::int64_t> strides;
    bool operator==(const Compared&) const = default;
  };
  static constexpr std::size_t kMostCompared = 1024;
  std::deque<Compared> compared;

 private:
  Status load(Side& side, plan::Direction direction, execute::ExecutableCache& executables,
              const plan::Family& family);
  Status allocate();
};

}  // namespace attn::ranks
