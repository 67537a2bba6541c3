// An execute that was captured into a CUDA graph: launching it costs the host about half of what
// executing does.
#pragma once

#include <span>
#include <string>

#include "runtime/cuda/graph.h"
#include "runtime/execute/binding.h"

namespace attn::execute {

// One thread at a time. Launches run one after another, on whatever streams.
class CudaGraph {
 public:
  // Takes the binding over. One with a stream_ordered workspace gets one of its own. Errors: cuda,
  // cudnn; then the binding is the caller's still, as it was.
  static Result<CudaGraph> capture(Binding&& binding);

  // Enqueues on `stream` and returns without waiting. The first launch after a change captures
  // anew, and puts the new arguments into the graph that there is. Errors: cuda, cudnn.
  Status launch(void* stream);

  // As those of Binding: launches from now on use what is given; those before are not affected.
  Status set_param(const std::string& name, double value);
  Status set_addresses(std::span<void* const> addresses, Check check = Check::yes);

 private:
  CudaGraph(Binding binding, cuda::Graph graph);

  Binding binding_;
  cuda::Graph graph_;
  bool stale_ = false;
};

}  // namespace attn::execute
