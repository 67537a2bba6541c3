// Arguments for timing a plan whose values do not matter.
#pragma once

#include "runtime/base/status.h"
#include "runtime/execute/device_tensors.h"
#include "runtime/plan/program.h"

namespace attn::bench {

// Standard normal values in all float inputs, zeros in integer ones. Errors: cuda.
Result<execute::DeviceTensors> random_tensors(const cuda::Device& device,
                                              const plan::Program& program);

// The tensors, and 1 for every param.
execute::Arguments with_unit_params(const execute::DeviceTensors& tensors,
                                    const plan::Program& program);

}  // namespace attn::bench
