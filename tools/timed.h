// Plans loaded on the local GPU, with tensors to time them on.
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
  // Floats are random. Integer tensors, which may decide what is visible, hold their defaults or
  // block patterns. Lengths are full.
  execute::DeviceTensors tensors;

  execute::Arguments arguments() const;  // params are 1
};

// The bound values of the inputs that determine which scores are visible. Errors: those of
// DeviceTensors::download; invalid_argument.
Result<reference::Inputs> bound_values(const ir::Attention& attention, const TimedPlan& timed);

// Loads a plan of this attention or its gradient. Errors: those of Executable::load, cuda.
Result<TimedPlan> load_timed(const ir::Attention& attention, const plan::Plan& plan,
                             const std::string& cudnn_folder);

// Median device time of several executes, in ms. Errors: those of load_timed, cuda.
Result<double> device_ms(const ir::Attention& attention, const plan::Plan& plan,
                         const std::string& cudnn_folder);

}  // namespace attn::tools
