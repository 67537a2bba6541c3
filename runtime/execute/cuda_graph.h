// An execute captured into a CUDA graph. A launch costs the host about half of an execute.
#pragma once

#include <span>
#include <string>

#include "runtime/cuda/graph.h"
#include "runtime/execute/binding.h"

namespace attn::execute {

// Serves one thread at a time. Launches run one after another, on any streams.
class CudaGraph {
 public:
  // Takes ownership of the binding. A binding with a stream_ordered workspace gets a workspace of
  // its own. Errors: cuda, cudnn; the caller then keeps the binding, unchanged.
  static Result<CudaGraph> capture(Binding&& binding);

  // Enqueues on `stream` and returns without waiting. The first launch after a change captures
  // again, and updates the existing graph with the new arguments. Errors: cuda, cudnn.
  Status launch(void* stream);

  // Changes what later launches use, as for a Binding; earlier ones are not affected.
  Status set_param(const std::string& name, double value);
  Status set_addresses(std::span<void* const> addresses, Check check = Check::yes);

 private:
  CudaGraph(Binding binding, cuda::Graph graph);

  Binding binding_;
  cuda::Graph graph_;
  bool stale_ = false;
};

}  // namespace attn::execute
