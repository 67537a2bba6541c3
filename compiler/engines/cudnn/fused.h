// An attention as one fused cuDNN kernel, with the kernels that prepare its tensors: what the
// strategies that divide an attention are made of.
#pragma once

#include "compiler/engines/shared/strategy.h"

namespace attn::engines {

// Lowers by `composite`, in the subject's direction. Errors: those of Strategy::lower.
Result<Lowered> fused(Subject& subject);

// The same for an attention that is part of another. Adds to `deriving_ms` what is predicted for
// the kernels that derive its tensors.
Result<Lowered> fused(const ir::Attention& attention, const target::Context& context,
                      double& deriving_ms);

}  // namespace attn::engines
