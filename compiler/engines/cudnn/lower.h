// Lowers an attention to a program with one cuDNN plan.
#pragma once

#include "compiler/engines/cudnn/forward.h"
#include "compiler/ir/attention.h"
#include "compiler/target/context.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Builds the cuDNN graph of the attention, whose dimensions are bound: composite() (forward.h),
// from products, pointwise operations and reductions, or unified() (unified.h), with a single node.
using Core = Result<plan::CudnnStep> (*)(const ir::Attention& attention,
                                         const masks::MaskForm& form);

// One cuDNN plan: Q K^T, scale, score, residual masks, band masks in the exact forms whose blocks
// cuDNN skips, softmax with statistics, P V; plus the steps that produce the tensors it needs.
// Masks must have been simplified. Without keys (Skv 0) a kernel fills the outputs, without cuDNN.
//
// Errors: invalid_argument for an open dimension; unsupported, with the position and a workaround;
// invalid_spec, with the position, for errors that only sizes reveal.
Result<plan::Program> lower(const ir::Attention& attention, const target::Context& context,
                            Core core = composite);

}  // namespace attn::engines
