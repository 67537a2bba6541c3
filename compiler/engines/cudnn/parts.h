// An attention as several fused kernels, for parts of its mask.
#pragma once

#include "compiler/engines/shared/strategy.h"

namespace attn::engines {

// The strategy `parts`, also for attentions whose gradients were checked as part of another.
Result<double> bound_of_parts(Subject& subject);
Result<Lowered> in_parts(Subject& subject);

}  // namespace attn::engines
