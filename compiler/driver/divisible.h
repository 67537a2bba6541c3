// Which dimensions of an attention parts may have, each computed as an attention of its own.
#pragma once

#include <vector>

#include "compiler/driver/driver.h"

namespace attn::driver {

// Those of B and Hq for which it is the same to compute all batches or heads at once, or some of
// them in each of several attentions with the parts of q, k, v and captured tensors: batches and
// heads are counted only as indices of dimensions that have all of them, and nothing else depends
// on their number. Random dropout counts them. None if that cannot be proved, or if the
// attention has branches, into which this does not look.
std::vector<ir::Dim> divisible_dims(const support::Source& source, const sema::Bindings& bindings);

}  // namespace attn::driver
