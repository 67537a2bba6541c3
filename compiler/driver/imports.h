// What a spec's text brings in.
#pragma once

#include "compiler/support/source.h"
#include "runtime/base/status.h"

namespace attn::driver {

// The text of a spec in a plan file stands alone: attnc writes what was imported into it. One that
// imports all the same would have files read that its author chose, on the machine of whoever looks
// at the plan. Errors: plan_damaged, naming the import.
Status check_stands_alone(const support::Source& source);

}  // namespace attn::driver
