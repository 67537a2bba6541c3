// The types behind the opaque handles of attn.h. Internal to runtime/api.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/api/attn.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/stream.h"
#include "runtime/execute/cuda_graph.h"
#include "runtime/execute/executable.h"
#include "runtime/execute/executable_cache.h"
#include "runtime/execute/schedule.h"
#include "runtime/plan/bundle.h"
#include "runtime/ranks/distributed.h"

namespace attn::api {

// Reference-counted; starts with one reference, and releasing the last one deletes it.
template <typename Handle>
class Counted {
 public:
  void retain() { count_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete static_cast<Handle*>(this);
  }

 private:
  std::atomic<std::int64_t> count_ = 1;
};

// Owns one reference to a handle.
template <typename Handle>
struct Releaser {
  void operator()(Handle* handle) const { handle->release(); }
};
template <typename Handle>
using Reference = std::unique_ptr<Handle, Releaser<Handle>>;

}  // namespace attn::api

struct attn_plan {
  explicit attn_plan(attn::plan::Bundle bundle);

  attn::plan::Bundle bundle;
  std::vector<std::string> signatures;
  std::vector<std::array<std::int64_t, ATTN_DIM_COUNT>> sizes;
};

struct attn_runtime : attn::api::Counted<attn_runtime> {
  attn_runtime(std::shared_ptr<attn::execute::Runtime> opened,
               const attn::cache::MemoryOptions& limits, const attn::execute::LoadOptions& options)
      : runtime(opened), executables(std::move(opened), limits, options) {}

  std::shared_ptr<attn::execute::Runtime> runtime;
  attn::execute::ExecutableCache executables;
};

struct attn_executable : attn::api::Counted<attn_executable> {
  attn_executable(attn::execute::Executable loaded, const attn::plan::Plan& plan)
      : executable(std::move(loaded)),
        name(plan.spec_name),
        target(plan.target.name),
        signature(plan.signature.hash.to_hex()) {}

  attn::execute::Executable executable;
  std::string name, target, signature;
};

namespace attn::api {

// Loads through the runtime's cache; the result has one reference. Errors: those of
// ExecutableCache::get.
Result<Reference<attn_executable>> load(attn_runtime& runtime, const plan::Plan& plan);

}  // namespace attn::api

struct attn_arguments {
  attn::execute::Arguments arguments;
  std::map<std::string, int> devices;  // CUDA ordinals of DLPack tensors
};

struct attn_binding {
  attn::execute::Binding binding;
};

struct attn_schedule {
  attn::execute::Schedule schedule;
};

struct attn_graph {
  std::optional<attn::execute::CudaGraph> graph{};  // set before the caller gets the handle
};

struct attn_distributed {
  explicit attn_distributed(attn::ranks::Distributed opened);

  attn::ranks::Distributed distributed;
  std::vector<attn_interval> rows, keys;  // at home
};

struct attn_distributed_binding {
  attn::ranks::DistributedBinding binding;
};

struct attn_memory {
  attn::cuda::DeviceBuffer buffer;
};

struct attn_stream {
  attn::cuda::Stream stream;
};
