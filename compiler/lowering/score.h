// What an attention does to its scores between the scaled products and the softmax, but for bands
// and padding: those have shapes of their own.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/lowering/graph_builder.h"
#include "compiler/passes/band.h"
#include "runtime/base/status.h"

namespace attn::lowering {

// The score modification and the residual masks. Errors: those of ExpressionLowering.
Result<Value> modify_score(const ir::Attention& attention, GraphBuilder& builder,
                           const passes::MaskForm& form, Value scaled);

}  // namespace attn::lowering
