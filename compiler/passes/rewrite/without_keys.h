// An attention that has no keys.
#pragma once

#include "compiler/ir/attention.h"

namespace attn::passes {

// Where Skv is 0: without what acts on scores and weights, of which there are none, so that no
// later pass meets an axis without elements. The sink, lengths and tensors stay. Any other
// attention is given back as it is.
ir::Attention without_keys(const ir::Attention& attention);

}  // namespace attn::passes
