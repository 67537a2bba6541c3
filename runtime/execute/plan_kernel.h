// The kernels of a plan. Private to this room.
#pragma once

#include <string>
#include <vector>

#include "runtime/cuda/kernel.h"
#include "runtime/plan/program.h"

namespace attn::execute {

// The kernel `name` of an image, whose parameters must be those that the program lists: pointers to
// `outputs` things, then the inputs, pointers to tensors and params by value. A launch reads as
// many arguments as the kernel has parameters, so one with more would read past those that there
// are. Errors: plan_damaged when the parameters differ; cuda, with a driver that cannot say too.
Result<cuda::Kernel> load_plan_kernel(const cuda::Device& device, const std::string& image,
                                      const char* name, std::size_t outputs,
                                      const std::vector<plan::OperandSource>& inputs);

}  // namespace attn::execute
