// Loads the kernels of a plan. Internal to runtime/execute.
#pragma once

#include <cstddef>

#include "runtime/cuda/kernel.h"
#include "runtime/plan/program.h"

namespace attn::execute {

// A kernel and the way to launch it.
struct LoadedLaunch {
  cuda::Kernel kernel;
  cuda::LaunchShape shape;
};

// Finds the launch's kernel and checks its parameters against the arguments, which follow
// `pointers` others. A launch reads as many arguments as the kernel has parameters, so one with
// more would read out of bounds. Errors: plan_damaged if the parameters differ; cuda, also if the
// driver cannot report them.
Result<LoadedLaunch> load_launch(const cuda::Module& module, const plan::Launch& launch,
                                 std::size_t pointers = 0);

}  // namespace attn::execute
