// Plans on the local GPU with tensors to be timed on.
#pragma once

#include <string>

#include "compiler/ir/attention.h"
#include "compiler/reference/evaluate.h"
#include "runtime/execute/device_tensors.h"
#include "runtime/execute/executable.h"
#include "runtime/plan/plan.h"

namespace attn::tools {

struct TimedPlan {
  const plan::Plan& plan;  // must outlive this
  execute::LoadOptions options;
  execute::Executable executable;
  // Random floats; in integer tensors, whose values decide what is visible, their defaults or block
  // patterns; full lengths.
  execute::DeviceTensors tensors;

  execute::Arguments arguments() const;  // params are 1
};

// What the count of shown scores depends on, with the values that are bound. Errors: those of
// DeviceTensors::download; invalid_argument.
Result<reference::Inputs> bound_values(const ir::Attention& attention, const TimedPlan& timed);

// Of a plan that computes this attention, or its gradient. Errors: those of Executable::load, cuda.
Result<TimedPlan> load_timed(const ir::Attention& attention, const plan::Plan& plan,
                             const std::string& cudnn_folder);

// The median of some executes, of the device's time alone. Errors: those of load_timed, cuda.
Result<double> device_ms(const ir::Attention& attention, const plan::Plan& plan,
                         const std::string& cudnn_folder);

}  // namespace attn::tools
