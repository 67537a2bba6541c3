// Arguments for timing a plan.
#pragma once

#include "runtime/base/status.h"
#include "runtime/execute/device_tensors.h"
#include "runtime/plan/program.h"

namespace attn::bench {

// Standard normal values in all float inputs, zeros in integer ones. Errors: cuda.
Result<execute::DeviceTensors> random_tensors(const cuda::Device& device,
                                              const plan::Program& program);

// Arguments with these tensors; every param is 1.
execute::Arguments with_unit_params(const execute::DeviceTensors& tensors,
                                    const plan::Program& program);

}  // namespace attn::bench
