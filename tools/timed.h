// Plans loaded on the local GPU, with tensors to time them on.
#pragma once

#include <string>

#include "compiler/driver/driver.h"
#include "compiler/ir/attention.h"
#include "compiler/reference/evaluate.h"
#include "runtime/execute/device_tensors.h"
#include "runtime/execute/executable.h"
#include "runtime/plan/plan.h"
#include "tools/command.h"
#include "tools/inputs.h"

namespace attn::tools {

struct TimedPlan {
  const plan::Plan& plan;  // must outlive this
  execute::LoadOptions options;
  reference::Inputs values;  // timed_values
  execute::Executable executable;
  // Tensors with the values that were given. Other floats are random; other integers, which may
  // decide what is visible, hold their defaults or block patterns.
  execute::DeviceTensors tensors;

  execute::Arguments arguments() const;  // other params are 1
};

// What is timed of the inputs that are not random: those of --in, the lengths that the spec
// declares, or all rows and keys without them, and a seed and an offset of 0. Errors: those of
// given_inputs and reference::default_values.
Result<reference::Inputs> timed_values(const ir::Attention& attention, const InputTexts& texts);

// The bound values of the inputs that determine which scores are visible. Errors: those of
// DeviceTensors::download; invalid_argument.
Result<reference::Inputs> bound_values(const ir::Attention& attention, const TimedPlan& timed);

// Loads a plan of this attention or its gradient, with what --in gives. Errors: those of
// timed_values and Executable::load, cuda.
Result<TimedPlan> load_timed(const ir::Attention& attention, const plan::Plan& plan,
                             const std::string& cudnn_folder, const InputTexts& texts = {});

// Median device time of several executes, in ms. Errors: those of load_timed, cuda.
Result<double> device_ms(const ir::Attention& attention, const plan::Plan& plan,
                         const std::string& cudnn_folder);

struct Tuning {
  bool all = false;    // --autotune
  bool never = false;  // --no-autotune
};
void add_autotune(CLI::App& command, Tuning& tuning);

// Sets what is measured on the local GPU, if that is the target: without an option, what is near.
// Near programs that cannot be measured are a note on standard error.
void set_autotune(driver::CompileOptions& how, const Tuning& tuning, bool is_local,
                  const std::string& cudnn_folder);

}  // namespace attn::tools
