// That every dimension has a size.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"

namespace attn::ir {

// Errors: invalid_argument, which names all dimensions without a size, and how to give them.
Status check_bound(const Attention& attention);

}  // namespace attn::ir
