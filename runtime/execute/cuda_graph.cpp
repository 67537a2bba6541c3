#include "runtime/execute/cuda_graph.h"

#include <utility>

#include "runtime/execute/binding_state.h"

namespace attn::execute {

CudaGraph::CudaGraph(Binding binding, cuda::Graph graph)
    : binding_(std::move(binding)), graph_(std::move(graph)) {}

Result<CudaGraph> CudaGraph::capture(Binding&& binding) {
  Binding::State& state = *binding.state_;
  const cuda::Device& device = state.owner->runtime->device();
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(device));
  const auto bytes = static_cast<std::size_t>(state.workspace_bytes());
  const bool has_own = state.own_workspace.data() != nullptr &&  // from Binding::graph()
                       state.own_workspace.size() >= bytes;
  cuda::DeviceBuffer own;
  if (state.is_pooled()) {
    if (!has_own) {
      ATTN_ASSIGN(own, state.allocate_workspace());
    }
    void* workspace = has_own ? state.own_workspace.data() : own.data();
    ATTN_RETURN_IF_ERROR(state.select(state.bases(state.tensors, workspace)));
  }
  ATTN_ASSIGN(cuda::Graph graph,
              cuda::Graph::capture(device, [&state](void* stream) { return state.run(stream); }));
  if (state.workspace_kind == Workspace::Kind::stream_ordered) {
    state.own(std::move(has_own ? state.own_workspace : own));
  }
  return CudaGraph(std::move(binding), std::move(graph));
}

Status CudaGraph::launch(void* stream) {
  if (stale_) {
    ATTN_RETURN_IF_ERROR(graph_.update([&](void* recorded) { return binding_.execute(recorded); }));
    stale_ = false;
  }
  return graph_.launch(stream);
}

Status CudaGraph::set_param(const std::string& name, double value) {
  ATTN_RETURN_IF_ERROR(binding_.set_param(name, value));
  stale_ = true;
  return {};
}

Status CudaGraph::set_addresses(std::span<void* const> addresses, Check check) {
  ATTN_RETURN_IF_ERROR(binding_.set_addresses(addresses, check));
  stale_ = true;
  return {};
}

}  // namespace attn::execute
