// Attentions without keys.
#pragma once

#include "compiler/ir/attention.h"

namespace attn::rewrite {

// If Skv is 0, removes what acts on scores and weights, of which there are none, so that no later
// pass sees an axis without elements. Keeps the sink, lengths and tensors. Returns any other
// attention unchanged.
ir::Attention without_keys(const ir::Attention& attention);

}  // namespace attn::rewrite
