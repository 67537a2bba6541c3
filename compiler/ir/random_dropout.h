// The probabilities that attnc's own random numbers can have.
#pragma once

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"

namespace attn::ir {

// Keys of a row whose numbers attnc's kernels draw at a time.
inline constexpr std::int64_t kDrawnKeys = 32;

// Checks what draws these numbers: the reference and attnc's kernels. Errors: unsupported, with a
// note of what works, if a probability of random dropout would be rounded to 0 or to 1.
Status check_random_dropout(const Attention& attention);

// The same for what draws as many numbers at a time as belong to 32 keys. Errors: unsupported, if a
// part's keys are not those of the whole attention, 32 by 32, or if its rows are numbered by a
// tensor.
Status check_draws_by_32(const Attention& attention);

}  // namespace attn::ir
