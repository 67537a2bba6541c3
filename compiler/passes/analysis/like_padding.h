// Masks that cuDNN's kernels mistake for padding.
#pragma once

#include <set>

#include "compiler/ir/attention.h"

namespace attn::passes {

// Comparisons of the row and of the column with tensors or params that vary with neither (integers
// or reals), if there are both; or if there is one and the attention has lengths or a thd or paged
// layout, for which the kernel compares both indices itself. cuDNN 9.19 takes `row < m[b] && column
// < n[b]` for the lengths of padding and silently hides nothing (H200; either alone is correct, and
// so are sums and multiples of an index). Whether it does so for tensors over heads and for params
// is not known.
std::set<ir::ExprId> like_padding(const ir::Attention& attention);

}  // namespace attn::passes
