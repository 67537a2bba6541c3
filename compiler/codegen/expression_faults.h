// Which nodes may have no value. Internal to compiler/codegen.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compiler/ir/attention.h"
#include "compiler/masks/range.h"

namespace attn::codegen {

std::int64_t extent_of(const ir::Attention& attention, const ir::CapturedTensor& tensor,
                       std::size_t axis);

// Whether an index of a load, a divisor or a count of a shift is not known to be in range.
bool may_fail(const ir::Attention& attention, masks::WholeRanges& ranges, ir::ExprId id);

}  // namespace attn::codegen
