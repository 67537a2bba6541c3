// What callers bind of an attention that is divided, by what the plans of its parts bind.
#pragma once

#include <span>

#include "compiler/driver/driver.h"
#include "runtime/ranks/program.h"

namespace attn::driver {

// Leaves out captured tensors, params and other names that no plan reads. Errors: internal, if a
// plan binds what nobody has.
Status match_plans(std::span<const Compiled> plans, ranks::Division& division);

}  // namespace attn::driver
