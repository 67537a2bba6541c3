// The runtime to embed: load a plan once, bind tensors once, execute many times.
//
//   ATTN_ASSIGN(auto executable, execute::Executable::load_file("gemma2_local.attnplan"));
//   ATTN_ASSIGN(auto binding, executable.bind(Arguments().tensor("q", {q, DType::bf16, dims,
//   strides})...)); ATTN_RETURN_IF_ERROR(executable.execute(binding, stream));
//
// Streams are `void*` (CUstream / cudaStream_t); no CUDA or cuDNN type appears here.
//
// Threads: one thread at a time for an Executable and all its Bindings (cuDNN's rule for a handle).
// Threads that work at once load an Executable each. The device's primary context must be current
// on the calling thread; `load` makes it so on its own, `make_current` on others, and code that
// uses the CUDA runtime API on the device already has it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/status.h"
#include "runtime/cuda/device.h"
#include "runtime/execute/arguments.h"
#include "runtime/plan/plan.h"

namespace attn::execute {

struct LoadOptions {
  int device = 0;            // CUDA ordinal
  std::string cudnn_folder;  // as for cudnn::Library::load: empty looks in the usual places
  // Whether bind looks for values that lead outside a tensor, or divide by 0, where a score depends
  // on them. Without it such scores have some value; nothing outside a tensor is read in either
  // case.
  bool check_values = true;
  // Which plan of a file load_file takes: of a training pair, an executable for each direction.
  plan::Direction direction = plan::Direction::forward;
};

class Binding;

class Executable {
 public:
  // Creates a cuDNN handle and loads every step's kernel; nothing is compiled. Errors: plan_device,
  // plan_version (the notes say what helps), cuda, cudnn, plan_damaged for a plan that contradicts
  // itself. load_file adds those of plan::load.
  static Result<Executable> load(const plan::Plan& plan, const LoadOptions& options = {});
  static Result<Executable> load_file(const std::string& path, const LoadOptions& options = {});
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;
  ~Executable();

  // Tensors and params to bind, and what the executable was made from.
  const plan::Program& program() const;
  const cuda::Device& device() const;
  std::int64_t cudnn_version() const;

  // Bytes of device memory that an execute needs besides the tensors; its address must be a
  // multiple of 256. Contents need not be kept between executes. Besides it the executable holds
  // what depends on no input: plan::internal_places(program, true).
  std::int64_t workspace_bytes() const;

  // Checks the arguments against the plan and makes all that an execute needs. The tensors' memory
  // stays the caller's and must outlive the binding's executes. With a null `workspace` the binding
  // owns one; otherwise the caller's is used, which must not be in use by anything that may run at
  // the same time. Errors: binding (every mistake, each naming its tensor), cuda, cudnn.
  //
  // Where the program has a check (program().check), the values of captured tensors and params are
  // looked at, unless LoadOptions::check_values says no: they must be there then, and the call
  // waits for the device. One pass over what is indexed by, and over the scores when that finds
  // anything. Values that change later are not looked at again.
  //
  // Managed memory is accepted; pinned host memory is not, although a device could read it.
  Result<Binding> bind(const Arguments& arguments, void* workspace = nullptr) const;

  // Enqueues on `stream` and returns without waiting. Does what cudnnBackendExecute with a kept
  // variant pack does, after a kernel launch for each derive step that is not made once, and
  // nothing besides: no allocation, no lock, no check of the tensors. May be captured into a CUDA
  // graph. Errors: binding when `binding` is of another executable, cudnn; after an error the
  // outputs are undefined.
  Status execute(const Binding& binding, void* stream);

  // The same with another workspace of the caller's, which the binding keeps from then on. A change
  // of workspace costs a new variant pack (about a microsecond and some host allocations a step).
  Status execute(Binding& binding, void* stream, void* workspace);

  // Makes the device's primary context current on this thread.
  Status make_current() const;

 private:
  friend class Binding;
  struct State;
  explicit Executable(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// Arguments that were checked, with the scalars' values and a workspace if it owns one. Keeps what
// it needs of its executable alive.
class Binding {
 public:
  Binding(Binding&&) noexcept;
  Binding& operator=(Binding&&) noexcept;
  ~Binding();

  // Executes from now on use `value`; those already enqueued are not affected. Errors: binding for
  // an unknown name or a value that its type cannot hold.
  Status set_param(const std::string& name, double value);

 private:
  friend class Executable;
  struct State;
  explicit Binding(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace attn::execute
