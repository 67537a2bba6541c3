// Finds patterns that lowering must not emit: graphs that crash cuDNN 9.19, that it silently
// computes wrongly, or that it refuses (docs/cudnn.md).
#pragma once

#include <string>

#include "runtime/graph/backend_graph.h"

namespace attn::testing {

// Describes the first of these patterns in the graph; "" if there is none:
// - a pointwise operation on scores whose first input, or condition, is not virtual;
// - device tensors of types that its kernels cannot read;
// - an operand that varies with the batch, or batch and head, but with neither rows nor columns
//   (except lengths that are also sizes of a product, which are read differently);
// - an operand of rows and columns whose columns are not adjacent in memory;
// - a logical operation not computed in FLOAT, except in a padding mask;
// - a comparison of two reals computed in BOOLEAN (a real with an index is allowed, as in a band);
// - with lengths, CMP_LT of a row index and anything but lengths.
std::string crash_pattern(const graph::BackendGraph& graph);

}  // namespace attn::testing
