// A binding: checked tensors, and all that executing them needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/status.h"

namespace attn::execute {

struct ExecutableState;  // executable_state.h, internal to runtime/execute
class Schedule;          // schedule.h

// Source of an execute's scratch memory, of Executable::workspace_bytes() bytes.
class Workspace {
 public:
  enum class Kind : std::uint8_t { owned, given, stream_ordered };

  // The binding allocates it and keeps it.
  static Workspace owned() { return {Kind::owned, nullptr}; }
  // The caller owns it. 256-byte aligned; no concurrent work may use it.
  static Workspace of(void* address) { return {Kind::given, address}; }
  // Each execute allocates it from the device's default memory pool and frees it, in stream order.
  // Many bindings can share that memory, for 2 to 4 microseconds per execute.
  static Workspace stream_ordered() { return {Kind::stream_ordered, nullptr}; }

  Kind kind() const { return kind_; }
  void* address() const { return address_; }

 private:
  Workspace(Kind kind, void* address) : kind_(kind), address_(address) {}
  Kind kind_;
  void* address_;
};

// Default number of address sets for which a binding keeps variant packs.
inline constexpr std::size_t kKeptAddresses = 8;
inline constexpr std::size_t kMostKeptAddresses = 4096;

// Whether to check addresses before use: not null, alignment, and the kind of memory, for which the
// driver is queried (about 0.3 microseconds each).
enum class Check : std::uint8_t { no, yes };

// Serves one thread at a time; concurrent threads need a binding each. Keeps what it needs of its
// executable alive.
//
// Executes of one binding may go to several streams, but the caller must keep them from
// overlapping: they share the outputs and the workspace (unless it is stream_ordered).
class Binding {
 public:
  Binding(Binding&&) noexcept;
  Binding& operator=(Binding&&) noexcept;
  ~Binding();

  // Enqueues on `stream` and returns without waiting. Launches a kernel for each derive step that
  // is not `once`, and calls cudnnBackendExecute with a cached variant pack for each cuDNN step;
  // nothing else: no allocation, no lock, no check of the tensors. May be captured into a CUDA
  // graph, the first time too (see CudaGraph); the binding and the workspace it had must then
  // outlive the graph's launches. Errors: cudnn, cuda; the outputs are then undefined. A device
  // fault is reported as `cuda`, even if cuDNN was the one to fail, provided that the driver
  // already reports it.
  Status execute(void* stream);

  // Returns one execute as a CUDA graph (CUgraph) with the current addresses, params and workspace,
  // for use as a child node, which copies it. The binding owns it until its next graph() or its
  // destruction. The binding and its workspace must outlive the launches; with a stream_ordered
  // workspace the binding allocates its own one for graphs. Errors: cudnn, cuda; the previous graph
  // is then still valid.
  Result<void*> graph();

  // Sets a param for later executes; those already enqueued are not affected. Errors: binding for
  // an unknown name or a value that its type cannot hold.
  Status set_param(const std::string& name, double value);

  // Later executes use these addresses, one for each of the program's tensors, in their order;
  // dims, strides and dtypes stay. Arguments of kernels are changed where an address is another
  // one, and tensor maps of it are encoded; nothing is allocated. Of the most recent address sets
  // (as many as passed to bind) tensor maps and cuDNN's variant packs are cached, and it is known
  // whether they were checked: returning to one costs next to nothing, a new one about a
  // microsecond per step of cuDNN's. Values of tensors that scores are indexed by are not checked
  // again. Errors: binding, cudnn, cuda; the addresses then stay as they were.
  Status set_addresses(std::span<void* const> addresses, Check check = Check::yes);

  // The same with other strides, in elements: of each tensor as many as it has dims, or null for
  // those that it has. Only tensors with bound strides may be given some. Those of a page table
  // cost little; those of tensors of which kernels have tensor maps, as much as a binding. Errors:
  // as above, also binding for strides that a binding refuses; all stay as they were.
  Status set_views(std::span<void* const> addresses, std::span<const std::int64_t* const> strides,
                   Check check = Check::yes);

  // Later executes use this workspace, owned by the caller. A workspace that the binding owned is
  // freed once the device is done with it. Errors: binding, cudnn, cuda.
  Status set_workspace(void* address);

  // Later executes, and graphs, use that schedule instead of making their own: they leave out the
  // launch that makes it. It must be built before, on the stream or in the graph, from this
  // binding's lengths, and is kept alive. Null: they make their own again. A workspace of the
  // binding's own is smaller with a schedule: before the first execute its memory is given back,
  // and a larger one is allocated when it is needed again. Errors: binding if the schedule is of a
  // plan with other ones; cuda, cudnn; the schedule stays as it was.
  Status use_schedule(const Schedule* schedule);

  // Looks at what the bound lengths, cu_seqlens and page tables hold, which no execute does: rows
  // and keys of a sequence beyond the plan's Sq and Skv, rows that begin below 0 or fall, and pages
  // in use that the bound pool does not have; only of the sequences that the schedule, if one is
  // used, was last built for, by a call of build(). Runs behind what `stream` was given before, and
  // waits for the result (null: also for the device). Errors: binding, naming the tensor and the
  // place, also while the stream is captured; unsupported on a GPU older than compute
  // capability 8.0; cuda.
  Status check(void* stream) const;

 private:
  friend class Executable;
  friend class CudaGraph;
  friend class Schedule;
  struct State;
  explicit Binding(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace attn::execute
