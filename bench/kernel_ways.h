// Ways to enqueue a plan of attnc's own kernels, for its host time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "runtime/cuda/kernel.h"
#include "runtime/execute/executable.h"
#include "runtime/execute/schedule.h"

namespace attn::bench {

// A kernel without work or arguments: what the driver takes for a launch.
class EmptyLaunch {
 public:
  // Errors: cuda.
  static Result<EmptyLaunch> create(const cuda::Device& device);
  Status operator()(void* stream) const { return kernel_.launch(stream, {}, nullptr); }

 private:
  explicit EmptyLaunch(cuda::Kernel kernel) : kernel_(std::move(kernel)) {}
  cuda::Kernel kernel_;
};

// A schedule that was built, and a binding that uses it; neither if the executable takes none. Not
// thread-safe.
struct Scheduled {
  // Errors: cuda, binding.
  static Result<Scheduled> create(const execute::Executable& executable,
                                  const execute::Arguments& arguments);

  std::optional<execute::Schedule> schedule{};
  std::optional<execute::Binding> binding{};
};

// Executes with another address of one tensor at every call, without checks.
class Moving {
 public:
  // `sets`: addresses of all tensors, of which the first one is used but for those of `tensor`. The
  // binding and the sets must outlive this.
  Moving(execute::Binding& binding, const std::vector<std::vector<void*>>& sets,
         std::size_t tensor);
  Status operator()(void* stream);

 private:
  execute::Binding& binding_;
  const std::vector<std::vector<void*>>& sets_;
  std::vector<void*> addresses_;
  std::size_t tensor_, next_ = 0;
};

// What an execute enqueues: launches of kernels, fills of memory with zeros, and executes of
// cuDNN's; with a schedule of the caller's, and without.
struct Enqueued {
  std::int64_t launches = 0, fills = 0, of_cudnn = 0;
};
Enqueued enqueued(const plan::Program& program, bool scheduled);

}  // namespace attn::bench
