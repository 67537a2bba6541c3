// Tensors that were checked, and all that executing them needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/status.h"

namespace attn::execute {

struct ExecutableState;  // executable_state.h, private to this room

// Where the scratch memory of an execute comes from; its size is Executable::workspace_bytes().
class Workspace {
 public:
  enum class Kind : std::uint8_t { owned, given, stream_ordered };

  // The binding has its own for as long as it lives.
  static Workspace owned() { return {Kind::owned, nullptr}; }
  // The caller's: a multiple of 256, and used by nothing that may run at the same time.
  static Workspace of(void* address) { return {Kind::given, address}; }
  // Taken from the device's default memory pool at every execute, in the order of the stream, and
  // given back behind it: what many bindings share, for 2 to 4 microseconds an execute.
  static Workspace stream_ordered() { return {Kind::stream_ordered, nullptr}; }

  Kind kind() const { return kind_; }
  void* address() const { return address_; }

 private:
  Workspace(Kind kind, void* address) : kind_(kind), address_(address) {}
  Kind kind_;
  void* address_;
};

// How many sets of addresses a binding keeps variant packs for.
inline constexpr std::size_t kKeptAddresses = 8;
inline constexpr std::size_t kMostKeptAddresses = 4096;

// Whether addresses are looked at before they are used: null, alignment, and what memory they are
// in, which the driver is asked (about 0.3 microseconds each).
enum class Check : std::uint8_t { no, yes };

// One thread at a time; threads that work at once have a binding each. Keeps what it needs of its
// executable alive.
//
// Executes of one binding may be on several streams, but then nothing but the caller keeps them
// from running at the same time: the outputs and the workspace are the same (unless it is
// stream_ordered).
class Binding {
 public:
  Binding(Binding&&) noexcept;
  Binding& operator=(Binding&&) noexcept;
  ~Binding();

  // Enqueues on `stream` and returns without waiting. Does what cudnnBackendExecute with a kept
  // variant pack does, after a kernel launch for each derive step that is not made once, and
  // nothing besides: no allocation, no lock, no check of the tensors. May be captured into a CUDA
  // graph, the first time too (CudaGraph does it by itself): then the binding, and the workspace
  // that it had, must outlive the graph's launches. Errors: cudnn, cuda; after an error the outputs
  // are undefined.
  // A fault of the device, as far as the driver reports it then, is an error `cuda` also where it
  // was cuDNN that failed.
  Status execute(void* stream);

  // One execute as a CUDA graph (CUgraph), to be a child node of the caller's: with the addresses,
  // params and workspace of now. It is the binding's, until its next graph() or its end; a node
  // made of it has a copy. As for captures, the binding and its workspace must outlive the
  // launches; with a stream_ordered workspace the binding gets one of its own for graphs. Errors:
  // cudnn, cuda, and then the graph before is there still.
  Result<void*> graph();

  // Executes from now on use `value`; those already enqueued are not affected. Errors: binding for
  // an unknown name or a value that its type cannot hold.
  Status set_param(const std::string& name, double value);

  // Executes from now on use these addresses, one for each of the program's tensors, in their
  // order; dims, strides and dtypes stay. The variant packs of the last sets of addresses are
  // kept (as many as bind was told): coming back to one of those costs next to nothing, another
  // about a microsecond a step. Values of tensors that scores are indexed by are not looked at.
  // Errors: binding, and then the addresses stay as they were; cudnn.
  Status set_addresses(std::span<void* const> addresses, Check check = Check::yes);

  // Executes from now on use this workspace of the caller's; what the binding owned goes, once the
  // device is done with it. Errors: binding, cudnn.
  Status set_workspace(void* address);

 private:
  friend class Executable;
  friend class CudaGraph;
  struct State;
  explicit Binding(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace attn::execute
