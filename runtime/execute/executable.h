// The runtime to embed: load a plan once, bind tensors once, execute many times.
//
//   ATTN_ASSIGN(auto executable, execute::Executable::load_file("gemma2_local.attnplan"));
//   ATTN_ASSIGN(auto binding, executable.bind(Arguments().tensor("q", {q, DType::bf16, dims,
//   strides})...));
//   ATTN_RETURN_IF_ERROR(binding.execute(stream));
//
// Streams are `void*` (CUstream / cudaStream_t); no CUDA or cuDNN type appears here. No call needs
// a CUDA context to be current, and none changes which one is (cuda::Scope: a thread that had none
// keeps the device's).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/status.h"
#include "runtime/execute/arguments.h"
#include "runtime/execute/binding.h"
#include "runtime/execute/runtime.h"
#include "runtime/plan/plan.h"

namespace attn::execute {

struct LoadOptions {
  int device = 0;            // CUDA ordinal; of loads without a Runtime
  std::string cudnn_folder;  // likewise; RuntimeOptions
  // Whether bind looks for values that lead outside a tensor, or divide by 0, where a score depends
  // on them. Without it such scores have some value; nothing outside a tensor is read in either
  // case.
  bool check_values = true;
  // Which plan of a file load_file takes: of a training pair, an executable for each direction.
  plan::Direction direction = plan::Direction::forward;
};

// Immutable; safe to use from many threads. Copies share it.
class Executable {
 public:
  // Loads every step's kernel; nothing is compiled. Errors: plan_device, plan_version (the notes
  // say what helps), cuda, cudnn, plan_damaged for a plan that contradicts itself. load_file adds
  // those of plan::load. Without a Runtime one is opened for this executable alone.
  static Result<Executable> load(std::shared_ptr<Runtime> runtime, const plan::Plan& plan,
                                 const LoadOptions& options = {});
  static Result<Executable> load(const plan::Plan& plan, const LoadOptions& options = {});
  static Result<Executable> load_file(const std::string& path, const LoadOptions& options = {});

  // Whether `load` would find that the plan is for another GPU or another cuDNN. Errors:
  // plan_device, plan_version.
  static Status check_fits(const Runtime& runtime, const plan::Plan& plan);

  // Tensors and params to bind, and what the executable was made from.
  const plan::Program& program() const;
  const plan::Signature& signature() const;
  const Runtime& runtime() const;
  const cuda::Device& device() const;
  std::int64_t cudnn_version() const;

  // Bytes of device memory that an execute needs besides the tensors; its address must be a
  // multiple of 256. Contents need not be kept between executes. Besides it the executable holds
  // device_bytes(), for all its bindings together.
  std::int64_t workspace_bytes() const;
  std::int64_t device_bytes() const;  // of what depends on no input, and of the index check

  // Checks the arguments against the plan and makes all that an execute needs: it may allocate, and
  // wait for the device. The tensors' memory stays the caller's and must outlive the binding's
  // executes. Errors: binding (every mistake, each naming its tensor), cuda, cudnn.
  //
  // Where the program has a check (program().check), the values of captured tensors and params are
  // looked at, unless LoadOptions::check_values says no: they must be there then, and the call
  // waits for the device. One pass over what is indexed by, and over the scores when that finds
  // anything. Values that change later are not looked at again.
  //
  // Managed memory is accepted; pinned host memory is not, although a device could read it.
  // `kept_addresses`: Binding::set_addresses; 1 .. kMostKeptAddresses, else invalid_argument. What
  // is kept takes some hundred bytes of host memory a step.
  Result<Binding> bind(const Arguments& arguments, Workspace workspace = Workspace::owned(),
                       std::size_t kept_addresses = kKeptAddresses) const;

 private:
  friend class ExecutableCache;
  explicit Executable(std::shared_ptr<const ExecutableState> state);
  std::shared_ptr<const ExecutableState> state_;
};

}  // namespace attn::execute
