// The derivative of each operation. Private to this room.
#pragma once

#include <span>

#include "compiler/gradient/tangent.h"

namespace attn::gradient {

// The derivative of the real node `id` from those of the nodes below it, by their ids. At least one
// of its operands has one; what is no real has none.
MaybeTangent tangent_of(ir::Dag& dag, ir::ExprId id, std::span<const MaybeTangent> tangents,
                        TangentBuilder& builder);

}  // namespace attn::gradient
