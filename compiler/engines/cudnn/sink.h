// The sink: a score per head that takes part in the softmax without a key.
#pragma once

#include <optional>

#include "compiler/engines/shared/graph_builder.h"
#include "compiler/ir/attention.h"
#include "runtime/base/status.h"

namespace attn::engines {

// The sink as a device tensor f32 [1,Hq,1,1]; nothing if the attention has none. Errors:
// unsupported, with the position, unless it is exactly `tensor[h]`.
Result<std::optional<Uid>> sink_operand(const ir::Attention& attention, GraphBuilder& builder);

}  // namespace attn::engines
