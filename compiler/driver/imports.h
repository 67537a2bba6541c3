// Imports of a spec in a plan file.
#pragma once

#include "compiler/support/source.h"
#include "runtime/base/status.h"

namespace attn::driver {

// Fails if a spec from a plan file has imports. attnc inlines imports when it writes a plan, so
// such a plan was written by another program, and could have files of its author's choice read on
// the machine where the plan is inspected. Errors: plan_damaged, naming the import.
Status check_stands_alone(const support::Source& source);

}  // namespace attn::driver
