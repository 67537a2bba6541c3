// What is compiled of a spec to be executed at once.
#pragma once

#include <optional>

#include "compiler/driver/driver.h"
#include "tools/spec.h"

namespace attn::tools {

struct Plans {
  plan::Plan forward;
  std::optional<plan::Plan> backward;  // of a training pair
};

// For how.target: the forward, or with `gradients` a pair (driver::compile_pair). Lowerings that
// were refused are told on standard error. Errors: those of driver::compile.
Result<Plans> compile_plans(const Spec& spec, const driver::CompileOptions& how, bool gradients);

}  // namespace attn::tools
