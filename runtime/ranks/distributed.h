// One rank of an attention that is divided among several GPUs: exchanges tensors with the others,
// computes its parts, and merges.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/execute/binding.h"
#include "runtime/execute/executable_cache.h"
#include "runtime/plan/bundle.h"
#include "runtime/ranks/lost.h"
#include "runtime/ranks/program.h"
#include "runtime/ranks/transport.h"

namespace attn::ranks {

struct DistributedOptions {
  bool forward = true, backward = true;  // directions to load, of those in the file
  std::chrono::seconds timeout{30};      // that an exchange may take, or another rank's open()
  AskForLost lost = {};                  // asked while an exchange takes longer than a second
};

struct DistributedState;  // distributed_state.h
class DistributedBinding;

// Serves one thread at a time. Copies share the object.
class Distributed {
 public:
  // Collective: every rank must call it, and all get an error if one fails. Loads the plans of this
  // rank's parts and allocates memory for them and for messages. `family` may be an error: the
  // other ranks are told. Errors: those of ExecutableCache::get; mismatch if ranks have different
  // files; invalid_argument for a file that is not of as many ranks; cuda; nccl.
  static Result<Distributed> open(execute::ExecutableCache& executables,
                                  const Result<plan::Family>& family,
                                  std::unique_ptr<Transport> transport,
                                  const DistributedOptions& options = {});

  const Division& division() const;
  const Program& program() const;  // of this rank
  bool has(plan::Direction direction) const;
  // Tensors to bind, with the strides that are proposed; empty for a direction that it does not
  // have.
  const std::vector<plan::TensorInfo>& tensors(plan::Direction direction) const;
  const std::vector<plan::ParamInfo>& params(plan::Direction direction) const;
  std::int64_t device_bytes() const;  // that it holds, with its executables
  const cuda::Device& device() const;

  // Not collective. Strides of divided tensors may be others than proposed if their last dimension
  // is contiguous; then the binding may need memory of its own. Tensors without elements need not
  // be given. Everything else is checked as by Executable::bind, and that tensors and params have
  // the values that the file was made for, if it was: then it waits for what `stream` was given,
  // without one for the device. While `stream` is captured no values can be read: those of tensors
  // must have been compared before, at the same addresses, with the same strides. Errors:
  // binding, cuda, cudnn, unsupported.
  Result<DistributedBinding> bind(plan::Direction direction, const execute::Arguments& arguments,
                                  void* stream = nullptr) const;

  // Whether all exchanges until now went well, or may still. Errors: nccl, and what else made an
  // execute fail after others may have begun theirs.
  Status status() const;
  // Not collective: gives up all exchanges, with an error nccl of later calls that says why.
  void abort(std::string why) const;

 private:
  explicit Distributed(std::shared_ptr<DistributedState> state) : state_(std::move(state)) {}
  std::shared_ptr<DistributedState> state_;
};

// Serves one thread at a time, together with all others of the same object.
class DistributedBinding {
 public:
  DistributedBinding(DistributedBinding&&) noexcept;
  DistributedBinding& operator=(DistributedBinding&&) noexcept;
  ~DistributedBinding();

  // Collective: every rank executes the same directions in the same order. Enqueues on `stream`,
  // and exchanges beside it, without waiting or allocating; may be captured into a CUDA graph.
  // Executes of one object must not overlap. Errors: cuda, cudnn, nccl; those of status().
  Status execute(void* stream);

  // Sets the addresses, as execute::Binding does, in the order of Distributed::tensors(). What is
  // checked, too, are the values of tensors at other addresses that the file was made for, as
  // Distributed::bind does: it waits for what `stream` was given, without one for the device, and
  // while `stream` is captured they must have been compared before.
  Status set_addresses(std::span<void* const> addresses, execute::Check check = execute::Check::yes,
                       void* stream = nullptr);
  Status set_param(const std::string& name, double value);

 private:
  friend class Distributed;
  struct State;
  explicit DistributedBinding(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace attn::ranks
