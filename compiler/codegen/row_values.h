// Values that all elements of a row share: threads compute them once a row.
#pragma once

#include <vector>

#include "compiler/ir/attention.h"

namespace attn::codegen {

// Whether the expression depends on the column of an element of a row, or on the element that
// `score` stands for.
bool varies_along(const ir::Attention& view, ir::ExprId id);

// The largest reals below `root` that are the same for all columns of a row and read tensors, where
// all indexes are known to be in range; four at most, since each takes registers.
std::vector<ir::ExprId> row_values(const ir::Attention& view, ir::ExprId root);

}  // namespace attn::codegen
