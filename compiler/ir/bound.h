// Checks that every dimension has a size.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"

namespace attn::ir {

// Errors: invalid_argument, which names the dimensions that need a size, and how to give
// them. Hkv, Skv and Dv are not among them while Hq, Sq and Dqk have none: these give theirs.
Status check_bound(const Attention& attention);

}  // namespace attn::ir
