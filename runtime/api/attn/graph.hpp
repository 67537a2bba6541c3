// Graph: an execute as a CUDA graph. Part of attn.hpp.
#pragma once

#include <string>
#include <vector>

#include "binding.hpp"
#include "graph.h"

namespace attn {
inline namespace v2 {

// An execute of a binding as a CUDA graph. For one thread at a time.
class Graph {
 public:
  Graph() = default;
  // Takes ownership of the binding, unless it fails.
  static Result<Graph> capture(Binding&& binding) {
    attn_binding* taken = binding.handle();
    attn_graph* graph = nullptr;
    ATTN_TRY(detail::Caller()(attn_graph_from_binding, &taken, &graph));
    binding.release();
    return Graph(graph);
  }

  // Like Binding::set_param; the next launch updates the graph.
  Status set_param(const std::string& name, double value) {
    return call_(attn_graph_set_param, handle(), name.c_str(), value);
  }
  // Like Binding::set_addresses; the next launch updates the graph.
  Status set_addresses(const std::vector<void*>& addresses, Check check = Check::addresses) {
    return call_(attn_graph_set_addresses, handle(), addresses.data(), addresses.size(),
                 static_cast<attn_check>(check));
  }
  // Enqueues the execute on a stream, and returns without waiting. Errors: cuda, cudnn.
  Status launch(void* stream) { return call_(attn_graph_launch, handle(), stream); }

  attn_graph* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }
  explicit Graph(attn_graph* handle) : handle_(handle) {}  // owns it

 private:
  detail::Caller call_;
  detail::Owned<attn_graph, attn_graph_destroy> handle_;
};

}  // namespace v2
}  // namespace attn
