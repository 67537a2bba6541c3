// The probabilities that attnc's own random numbers can have.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"

namespace attn::ir {

// For what draws these numbers: the reference and attnc's kernels. Errors: unsupported, with a note
// of what works, if a probability of random dropout would be rounded to 0 or to 1.
Status check_random_dropout(const Attention& attention);

}  // namespace attn::ir
