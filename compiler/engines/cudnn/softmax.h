// The softmax in forms that cuDNN's fused engines match, with its statistics.
#pragma once

#include <optional>

#include "compiler/engines/shared/graph_builder.h"
#include "compiler/ir/attention.h"

namespace attn::engines {

// p = exp(score - max) / (sum(exp(score - max)) + exp(sink - max)), plus the stored statistics
// (statistics.h). With a sink (f32 [1,Hq,1,1]), max is the larger of it and the largest score. The
// weights have type `dtype`: f32, or the attention's if only the product with v reads them.
Value softmax(const ir::Attention& attention, GraphBuilder& builder, Value score,
              std::optional<Uid> sink, DType dtype);

}  // namespace attn::engines
