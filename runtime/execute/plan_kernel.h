// Loads the kernels of a plan. Internal to runtime/execute.
#pragma once

#include <string>
#include <vector>

#include "runtime/cuda/kernel.h"
#include "runtime/plan/program.h"

namespace attn::execute {

// Loads the kernel `name` of an image and checks its parameters against the program: `outputs`
// pointers, then the inputs: pointers to tensors, params by value. A launch reads as many arguments
// as the kernel has parameters, so one with more would read out of bounds. Errors: plan_damaged if
// the parameters differ; cuda, also if the driver cannot report them.
Result<cuda::Kernel> load_plan_kernel(const cuda::Device& device, const std::string& image,
                                      const char* name, std::size_t outputs,
                                      const std::vector<plan::OperandSource>& inputs);

}  // namespace attn::execute
