// Dropout: which of the softmax's weights are kept.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/lowering/graph_builder.h"
#include "runtime/base/status.h"

namespace attn::lowering {

// Device tensors i64 [1] that the random numbers of dropout are made from.
inline constexpr const char* kSeed = "seed";
inline constexpr const char* kOffset = "offset";

// One of them.
Uid add_random_control(GraphBuilder& builder, const char* name);

// The kept weights times 1 / (1 - p), in the attention's dtype; `weights` as they are when the
// attention has no dropout. Errors: unsupported, with the place.
Result<Value> dropout(const ir::Attention& attention, GraphBuilder& builder, Value weights);

}  // namespace attn::lowering
