// Runs kernels on the host: compiles them at run time with the compiler of this build, and loads
// them. Those of kernel steps run on an emulated GPU (gpu/gpu.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/program.h"
#include "tests/host/gpu/launch.h"

namespace attn::host {

class Kernels {
 public:
  // Compiles the kernels of all programs at once. Errors: internal, with the compiler's output.
  static Result<Kernels> compile(const std::vector<const plan::Program*>& programs);

  // Runs all threads of a kernel. `arguments` are as for cuLaunchKernel. The step must be one of
  // the compiled programs'.
  void launch(const plan::DeriveStep& step, std::int64_t threads, void* const* arguments) const;
  // One launch of a step. Errors: internal, if the kernel cannot end.
  Status launch(const plan::KernelStep& step, const plan::Launch& launch, void* const* arguments,
                gpu::Order order, unsigned at_once = 1) const;

 private:
  using Numbers = std::map<std::string, std::size_t, std::less<>>;  // keyed by source

  Kernels(Numbers numbers, std::shared_ptr<void> library)
      : numbers_(std::move(numbers)), library_(std::move(library)) {}

  void* find(const std::string& name) const;

  Numbers numbers_;
  std::shared_ptr<void> library_;
};

}  // namespace attn::host
