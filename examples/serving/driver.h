// The few functions of the CUDA driver that the example calls, loaded at run time, so that it
// builds without CUDA. An application includes cuda.h, or cuda_runtime.h, whose streams and graphs
// are the same types.
#pragma once

#include <dlfcn.h>

#include <attn.hpp>
#include <cstdint>
#include <memory>
#include <string>

namespace examples {

// What the driver made, and the function that ends it.
using Held = std::unique_ptr<void, int (*)(void*)>;

class Driver {
 public:
  // Makes the primary context of device 0 current on this thread, and keeps it as long as the
  // process lives. A runtime of that device uses the same.
  static attn::Result<Driver> open() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return attn::Error{attn::Code::cuda, dlerror(), {}, {}};
    Driver driver;
    bool found = find(library, "cuDevicePrimaryCtxRetain", driver.retain_);
    found &= find(library, "cuCtxSetCurrent", driver.set_current_);
    found &= find(library, "cuMemHostAlloc", driver.allocate_);
    found &= find(library, "cuMemFreeHost", driver.free_);
    found &= find(library, "cuMemcpyHtoDAsync_v2", driver.copy_);
    found &= find(library, "cuStreamBeginCapture_v2", driver.begin_);
    found &= find(library, "cuStreamEndCapture", driver.end_);
    found &= find(library, "cuGraphInstantiateWithFlags", driver.instantiate_);
    found &= find(library, "cuGraphDestroy", driver.destroy_graph_);
    found &= find(library, "cuGraphLaunch", driver.launch_);
    found &= find(library, "cuGraphExecDestroy", driver.destroy_);
    if (!found) return attn::Error{attn::Code::cuda, "the driver is older than CUDA 12", {}, {}};
    void* context = nullptr;
    ATTN_TRY(check(driver.retain_(&context, 0), "cuDevicePrimaryCtxRetain"));
    ATTN_TRY(check(driver.set_current_(context), "cuCtxSetCurrent"));
    return driver;
  }

  // Page-locked memory of the host, from which copies do not wait.
  attn::Result<Held> allocate(std::size_t bytes) const {
    void* memory = nullptr;
    ATTN_TRY(check(allocate_(&memory, bytes, 0), "cuMemHostAlloc"));
    return Held(memory, free_);
  }
  // Enqueues a copy to the device and returns.
  attn::Status copy(void* to, const void* from, std::size_t bytes, void* stream) const {
    return check(copy_(reinterpret_cast<std::uintptr_t>(to), from, bytes, stream),
                 "cuMemcpyHtoDAsync");
  }

  // Returns a CUgraphExec of what `record` enqueues on the stream.
  template <typename Record>
  attn::Result<Held> capture(void* stream, const Record& record) const {
    constexpr int kThreadLocal = 1;  // what other threads do meanwhile is no error
    ATTN_TRY(check(begin_(stream, kThreadLocal), "cuStreamBeginCapture"));
    const attn::Status recorded = record();
    void *graph = nullptr, *made = nullptr;
    const int ended = end_(stream, &graph);
    const int result = ended == 0 && recorded.ok() ? instantiate_(&made, graph, 0) : 0;
    if (graph != nullptr) destroy_graph_(graph);
    if (!recorded.ok()) return recorded.error();
    ATTN_TRY(check(ended, "cuStreamEndCapture"));
    ATTN_TRY(check(result, "cuGraphInstantiateWithFlags"));
    return Held(made, destroy_);
  }
  attn::Status launch(void* graph, void* stream) const {
    return check(launch_(graph, stream), "cuGraphLaunch");
  }

 private:
  template <typename Function>
  static bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }
  static attn::Status check(int result, const char* function) {
    if (result == 0) return {};
    return attn::Error{
        attn::Code::cuda, std::string(function) + " failed with " + std::to_string(result), {}, {}};
  }

  int (*retain_)(void**, int) = nullptr;
  int (*set_current_)(void*) = nullptr;
  int (*allocate_)(void**, std::size_t, unsigned) = nullptr;
  int (*free_)(void*) = nullptr;
  int (*copy_)(std::uintptr_t, const void*, std::size_t, void*) = nullptr;
  int (*begin_)(void*, int) = nullptr;
  int (*end_)(void*, void**) = nullptr;
  int (*instantiate_)(void**, void*, unsigned long long) = nullptr;
  int (*destroy_graph_)(void*) = nullptr;
  int (*launch_)(void*, void*) = nullptr;
  int (*destroy_)(void*) = nullptr;
};

}  // namespace examples
