// Binding: checked arguments and a workspace. Part of attn.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "binding.h"
#include "handle.hpp"

namespace attn {
inline namespace v2 {

// Whether set_addresses checks the addresses.
enum class Check : std::int32_t { addresses = ATTN_CHECK_ADDRESSES, nothing = ATTN_CHECK_NOTHING };

// Where the workspace of a binding's executes is.
class Workspace {
 public:
  // The binding allocates and keeps it.
  static Workspace owned() { return Workspace(ATTN_WORKSPACE_OWNED, nullptr); }
  // The caller's device memory, workspace_bytes() long and aligned to 256 bytes. Nothing else may
  // use it meanwhile.
  static Workspace of(void* memory) { return Workspace(ATTN_WORKSPACE_CALLER, memory); }
  // Each execute allocates and frees it on its stream.
  static Workspace stream_ordered() { return Workspace(ATTN_WORKSPACE_STREAM_ORDERED, nullptr); }

  // The options of attn_binding_create that say this.
  attn_bind_options options() const {
    attn_bind_options plain = {};
    plain.size = sizeof plain;
    plain.workspace = kind_;
    plain.workspace_memory = memory_;
    return plain;
  }

 private:
  Workspace(attn_workspace kind, void* memory) : kind_(kind), memory_(memory) {}
  attn_workspace kind_;
  void* memory_;
};

class Schedule;

// Checked arguments and a workspace. For one thread at a time. Executes on several streams must not
// overlap: they share outputs, workspace, and copies of page tables whose row stride is larger than
// the plan's.
class Binding {
 public:
  Binding() = default;
  // Sets a param for later executes. Errors: binding.
  Status set_param(const std::string& name, double value) {
    return call_(attn_binding_set_param, handle(), name.c_str(), value);
  }
  // Later executes use other memory of the same shapes, in the order of Executable::tensors().
  // Errors: binding, cudnn, cuda.
  Status set_addresses(const std::vector<void*>& addresses, Check check = Check::addresses) {
    return call_(attn_binding_set_addresses, handle(), addresses.data(), addresses.size(),
                 static_cast<attn_check>(check));
  }
  // The same with other strides of tensors with bound strides, in elements: of each tensor as many
  // as it has dims, or null for those that it has. Errors: binding, cudnn, cuda.
  Status set_views(const std::vector<void*>& addresses,
                   const std::vector<const std::int64_t*>& strides,
                   Check check = Check::addresses) {
    if (addresses.size() != strides.size())
      return Error{Code::binding, "there must be as many strides as addresses", {}, {}};
    return call_(attn_binding_set_views, handle(), addresses.data(), strides.data(),
                 addresses.size(), static_cast<attn_check>(check));
  }
  // Later executes use this workspace of the caller's. Errors: binding, cudnn.
  Status set_workspace(void* memory) { return call_(attn_binding_set_workspace, handle(), memory); }
  // Enqueues on a stream (CUstream, cudaStream_t), and returns without waiting. Errors: cuda,
  // cudnn.
  Status execute(void* stream) { return call_(attn_binding_execute, handle(), stream); }
  // Later executes use the schedule instead of making their own; an empty one: they make their own
  // again. Errors: binding, cuda, cudnn.
  Status use_schedule(const Schedule& schedule);
  // Looks at what lengths, cu_seqlens and page tables hold: see attn_binding_check. Waits for the
  // stream. Errors: binding, unsupported, cuda.
  Status check(void* stream) { return call_(attn_binding_check, handle(), stream); }
  // A CUgraph for use as a child node; the binding owns it, and it is valid until the next call.
  Result<void*> cuda_graph() {
    void* graph = nullptr;
    ATTN_TRY(call_(attn_binding_cuda_graph, handle(), &graph));
    return graph;
  }

  attn_binding* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }
  // Gives up the handle, which the caller then owns.
  attn_binding* release() { return handle_.release(); }
  explicit Binding(attn_binding* handle) : handle_(handle) {}  // owns it

 private:
  detail::Caller call_;
  detail::Owned<attn_binding, attn_binding_destroy> handle_;
};

}  // namespace v2
}  // namespace attn
