// Plans to execute: compiled from a spec, or read from a plan file.
#pragma once

#include <optional>

#include "compiler/driver/driver.h"
#include "runtime/plan/bundle.h"
#include "tools/spec.h"

namespace attn::tools {

struct Plans {
  plan::Plan forward;
  std::optional<plan::Plan> backward;  // of a training pair
};

// Compiles the forward for how.target, or with `gradients` a training pair (driver::compile_pair).
// Prints refused strategies to standard error. Errors: those of driver::compile.
Result<Plans> compile_plans(const Spec& spec, driver::CompileOptions how, bool gradients);

// The forward of a training pair, for the o and lse that its backward reads. The same.
Result<plan::Plan> compile_training_forward(const Spec& spec, driver::CompileOptions how);

// Sizes that --bind gives for a plan. Errors: invalid_argument for a binding that is not a size.
Result<plan::Sizes> sizes_of(const sema::Bindings& bindings);

// The plans of a file for these sizes (--bind with a plan). Errors: those of plan::load_bundle,
// plan::plans_for and sizes_of.
Result<plan::Bundle> read_plans(const std::string& path, const sema::Bindings& sizes);

// The same, but they must have one shape. Of a file for several GPUs, those for the local one, or
// with a note for the first. Errors: also those of plan::check_one_shape.
Result<plan::Bundle> read_shape(const std::string& path, const sema::Bindings& sizes);

}  // namespace attn::tools
