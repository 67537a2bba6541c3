// The score modification and the residual masks, between the scaled products and the softmax. Bands
// and padding have their own forms (bands.h, lengths.h).
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/lowering/cudnn/expression.h"
#include "compiler/lowering/cudnn/graph_builder.h"
#include "compiler/passes/analysis/band.h"
#include "runtime/base/status.h"

namespace attn::lowering {

// x * scale
Result<Value> times_scale(const ir::Attention& attention, GraphBuilder& builder, Value x);

// `x` where the residual masks show it, else -inf. `expressions` must know the score.
Result<Value> mask_residual(const ir::Attention& attention, GraphBuilder& builder,
                            const passes::MaskForm& form, ExpressionLowering& expressions, Value x);

// The score modification and the residual masks. Errors: those of ExpressionLowering.
Result<Value> modify_score(const ir::Attention& attention, GraphBuilder& builder,
                           const passes::MaskForm& form, Value scaled);

}  // namespace attn::lowering
