// The C++ runtime behind attn.h: load a plan once, bind tensors once, execute many times.
//
//   ATTN_ASSIGN(auto executable, execute::Executable::load_file("gemma2_local.attnplan"));
//   ATTN_ASSIGN(auto binding, executable.bind(Arguments().tensor("q", {q, DType::bf16, dims,
//   strides})...));
//   ATTN_RETURN_IF_ERROR(binding.execute(stream));
//
// Streams are `void*` (CUstream or cudaStream_t); no CUDA or cuDNN type appears here. No call needs
// a current CUDA context, and none changes the current one, except that a thread that had none
// keeps the device's (cuda::Scope).
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
  int device = 0;            // CUDA ordinal, for loads without a Runtime
  std::string cudnn_folder;  // likewise; see RuntimeOptions
  // Whether bind checks captured tensors and params for values that make a score index outside a
  // tensor or divide by 0. Without the check such scores are unspecified; nothing outside a tensor
  // is read in either case.
  bool check_values = true;
  // Which plan load_file loads: a training pair has one for each direction.
  plan::Direction direction = plan::Direction::forward;
};

// Immutable and thread-safe. Copies share the executable.
class Executable {
 public:
  // Loads every step's kernel; nothing is compiled. Errors: plan_device, plan_version (with hints
  // in the notes), cuda, cudnn, plan_damaged for an inconsistent plan. load_file adds those of
  // plan::load. Without a Runtime, one is opened for this executable alone.
  static Result<Executable> load(std::shared_ptr<Runtime> runtime, const plan::Plan& plan,
                                 const LoadOptions& options = {});
  static Result<Executable> load(const plan::Plan& plan, const LoadOptions& options = {});
  static Result<Executable> load_file(const std::string& path, const LoadOptions& options = {});

  // Whether the plan is for this GPU and, if it has steps of cuDNN's, this cuDNN. Errors:
  // plan_device, plan_version; those of Runtime::cudnn.
  static Status check_fits(Runtime& runtime, const plan::Plan& plan);

  // Tensors and params to bind, and the steps.
  const plan::Program& program() const;
  const plan::Signature& signature() const;
  const Runtime& runtime() const;
  const cuda::Device& device() const;

  // Device memory in bytes that an execute needs besides the tensors; its address must be 256-byte
  // aligned. It holds nothing between executes. The executable also holds device_bytes(), shared by
  // all its bindings.
  std::int64_t workspace_bytes() const;
  std::int64_t device_bytes() const;  // for input-independent tensors and the index check

  // Checks the arguments against the plan and prepares all that an execute needs; may allocate and
  // wait for the device. The caller keeps ownership of the tensors, which must outlive the
  // binding's executes. Errors: binding (every mistake, each naming its tensor), cuda, cudnn.
  //
  // If the program has a check (program().check), the values of captured tensors and params are
  // checked, unless LoadOptions::check_values is false: they must be final by then, or when what
  // the default stream and `stream` were given is done, and the call waits for that. Takes one pass
  // over the indexing tensors, and one over the scores if that finds anything. Later changes of
  // values are not checked.
  //
  // `stream`: the stream of the executes; required if the stream may be in a capture. A CUDA graph
  // reads the values that tensors have when it is launched, so during a capture bind waits for
  // nothing, shares existing cuDNN handles, and does not check values: a bind before the capture
  // must have checked them (else error: binding). Memory that bind allocates is not part of the
  // graph.
  //
  // Managed memory is accepted; pinned host memory is not, although a device could read it.
  // `kept_addresses` (see Binding::set_addresses): 1 .. kMostKeptAddresses, else invalid_argument.
  // Each kept set takes some hundred bytes of host memory per step.
  //
  // `schedule`: as if the binding used it (Binding::use_schedule), but a larger workspace of the
  // binding's own is not allocated before. May be null.
  Result<Binding> bind(const Arguments& arguments, Workspace workspace = Workspace::owned(),
                       std::size_t kept_addresses = kKeptAddresses, void* stream = nullptr,
                       const Schedule* schedule = nullptr) const;

 private:
  friend class ExecutableCache;
  friend class Schedule;
  explicit Executable(std::shared_ptr<const ExecutableState> state);
  std::shared_ptr<const ExecutableState> state_;
};

}  // namespace attn::execute
