// An attention as one fused cuDNN kernel, with the kernels that prepare its tensors: what the
// strategies that divide an attention are made of.
#pragma once

#include "compiler/planner/strategies.h"

namespace attn::planner {

// By `composite`, in the subject's direction. Errors: those of Strategy::lower.
Result<Lowered> fused(Subject& subject);

// The same for an attention of which this one is a part.
Result<Lowered> fused(const ir::Attention& attention, const planning::Context& context);

}  // namespace attn::planner
