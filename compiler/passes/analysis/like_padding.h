// Masks that cuDNN's kernels would take for something else.
#pragma once

#include <set>

#include "compiler/ir/attention.h"

namespace attn::passes {

// Comparisons of the row, and of the column, with tensors or params that vary with neither, be they
// integers or reals, where there are both, or where there is one and the attention has lengths or
// rows that controls place, by which the kernel compares both itself. cuDNN 9.19 takes `row < m[b]
// && column < n[b]` for the lengths of padding and in silence hides nothing (H200; either alone is
// right, and so are sums and multiples of an index). Whether it does so of tensors over heads and
// of params is not known.
std::set<ir::ExprId> like_padding(const ir::Attention& attention);

}  // namespace attn::passes
