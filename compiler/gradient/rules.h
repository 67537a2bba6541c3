// The derivative of each operation. Internal to compiler/gradient.
#pragma once

#include <span>

#include "compiler/gradient/tangent.h"

namespace attn::gradient {

// The derivative of the real node `id` from those of the nodes below it, by id. At least one of its
// operands must have one; nodes that are not real have none.
MaybeTangent tangent_of(ir::Dag& dag, ir::ExprId id, std::span<const MaybeTangent> tangents,
                        TangentBuilder& builder);

}  // namespace attn::gradient
