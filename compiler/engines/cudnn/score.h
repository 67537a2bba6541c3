// The score modification and the residual masks, between the scaled products and the softmax. Bands
// and padding have their own forms (bands.h, lengths.h).
#pragma once

#include <optional>

#include "compiler/engines/cudnn/expression.h"
#include "compiler/engines/shared/graph_builder.h"
#include "compiler/ir/attention.h"
#include "compiler/masks/band.h"
#include "runtime/base/status.h"

namespace attn::engines {

// x * scale
Result<Value> times_scale(const ir::Attention& attention, GraphBuilder& builder, Value x);

// `x` where the residual masks show it, else -inf. `expressions` must know the score.
Result<Value> mask_residual(const ir::Attention& attention, GraphBuilder& builder,
                            const masks::MaskForm& form, ExpressionLowering& expressions, Value x);

// The score modification and the residual masks. Errors: those of ExpressionLowering.
Result<Value> modify_score(const ir::Attention& attention, GraphBuilder& builder,
                           const masks::MaskForm& form, Value scaled);

// The sink, a score per head that takes part in the softmax without a key, as a device tensor
// f32 [1,Hq,1,1]; nothing if the attention has none. Errors: unsupported, with the position, unless
// it is exactly `tensor[h]`.
Result<std::optional<Uid>> sink_operand(const ir::Attention& attention, GraphBuilder& builder);

}  // namespace attn::engines
