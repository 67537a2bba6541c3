// Plans to be executed at once: compiled of a spec, or those of a plan file.
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

// For how.target: the forward, or with `gradients` a pair (driver::compile_pair). Lowerings that
// were refused are told on standard error. Errors: those of driver::compile.
Result<Plans> compile_plans(const Spec& spec, const driver::CompileOptions& how, bool gradients);

// The plans of a file that are for these sizes: --bind with a plan. Errors: those of
// plan::load_bundle and plan::plans_for; invalid_argument for a binding that is no size.
Result<plan::Bundle> read_plans(const std::string& path, const sema::Bindings& sizes);

// The same, of one shape. Errors: those, and of plan::check_one_shape.
Result<plan::Bundle> read_shape(const std::string& path, const sema::Bindings& sizes);

}  // namespace attn::tools
