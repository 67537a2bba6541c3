// The sink: a score of each head that takes part in the softmax and shows nothing.
#pragma once

#include <optional>

#include "compiler/ir/attention.h"
#include "compiler/lowering/cudnn/graph_builder.h"
#include "runtime/base/status.h"

namespace attn::lowering {

// The sink as a device tensor f32 [1,Hq,1,1]; nothing when the attention has none. Errors:
// unsupported, with the place, for one that is not simply `tensor[h]`.
Result<std::optional<Uid>> sink_operand(const ir::Attention& attention, GraphBuilder& builder);

}  // namespace attn::lowering
