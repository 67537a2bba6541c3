// Exchanges by NCCL, over a communicator of the caller.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/stream.h"
#include "runtime/ranks/gate.h"
#include "runtime/ranks/lost.h"
#include "runtime/ranks/nccl.h"
#include "runtime/ranks/transport.h"

namespace attn::ranks {

struct NcclOptions {
  void* communicator = nullptr;  // ncclComm_t, blocking or not; the caller's
  int ranks = 0;                 // that it must have; 0: any number
  std::chrono::milliseconds timeout = std::chrono::seconds(30);  // of a non-blocking communicator
  // Aborts instead of ncclCommAbort. Called once at most, from any thread; must not throw.
  std::function<void()> abort = {};
  AskForLost lost = {};  // asked while all_gather() waits
};

// Uses the communicator until it is aborted, by abort() or because all_gather() failed once NCCL
// was called, and never after. A call that waits for other ranks on the host when it is aborted
// gets a moment to end; then NCCL ends it.
class NcclTransport final : public Transport {
 public:
  // Waits until a communicator that is still being made is ready. Errors: invalid_argument if there
  // is no communicator, or it is for another device or number of ranks; nccl; cuda.
  static Result<std::unique_ptr<NcclTransport>> create(std::shared_ptr<const Nccl> nccl,
                                                       const cuda::Device& device,
                                                       NcclOptions options);

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  Status exchange(std::span<const Piece> sends, std::span<const Piece> receives,
                  void* stream) override;
  Status all_reduce(float* values, std::size_t count, void* stream) override;
  Result<std::vector<std::string>> all_gather(std::string_view bytes, int timeout_seconds) override;
  Status failed() const override;
  void abort() override;

 private:
  NcclTransport(std::shared_ptr<const Nccl> nccl, const cuda::Device& device, NcclOptions options,
                cuda::Stream stream, cuda::Event event);
  // Each calls NCCL unless it is aborted.
  template <typename Function>
  Status call(std::string_view action, const Function& function) const;
  template <typename Function>
  Status enqueue(std::string_view action, const Function& function);
  Status wait_ready(std::string_view action) const;
  Status describe();
  Status gather(const cuda::DeviceBuffer& own, const cuda::DeviceBuffer& all);
  Status wait_for_event() const;

  const std::shared_ptr<const Nccl> nccl_;
  const cuda::Device device_;
  const NcclOptions options_;
  cuda::Stream stream_;  // of all_gather()
  cuda::Event event_;
  int rank_ = 0;
  int ranks_ = 0;
  // The gate of all transports of the communicator.
  const std::shared_ptr<Gate> gate_;
};

}  // namespace attn::ranks
