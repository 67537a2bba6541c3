// What is compiled of a plan: the steps of its program.
#pragma once

#include "compiler/driver/driver.h"

namespace attn::driver {

// What the kernels of a program may need, and when they must be there.
struct Limits {
  std::optional<nvrtc::KernelLimits> of_kernels{};
  const target::Deadline* deadline = nullptr;  // of the build
  std::int64_t spilled_bytes = 0;              // by the kernels that were compiled last
};

// Graphs of the program's steps of cuDNN, equal ones once, and which is that of each step.
struct Graphs {
  std::vector<graph::BackendGraph> all;
  std::vector<std::size_t> of_steps;
};
Graphs graphs_of(const plan::Program& program);

// Fills in what depends on the target: compiled steps, cuDNN's version (0 without steps of its),
// signature. Errors: those of worker::compile and worker::compile_kernel, and unsupported where
// kernels go beyond the limits.
Status compile_steps(plan::Plan& plan, const CompileOptions& options, Limits& limits);

// A refusal by cuDNN with its reason (reason_of) as the message, which else says that it refuses; a
// failure of cuDNN's with it as the first note. Other errors stay as they are.
Error with_reason(Error error);

}  // namespace attn::driver
