// Graphs that cuDNN 9.19 dies of, computes wrongly in silence, or refuses: what lowering must not
// emit (docs/cudnn.md).
#pragma once

#include <string>

#include "runtime/graph/backend_graph.h"

namespace attn::testing {

// The first of these patterns in the graph, in words; empty when there is none:
// - a pointwise operation on scores whose first input, or condition, is not virtual;
// - device tensors of types that its kernels cannot read;
// - an operand that varies with the batch, or batch and head, but with neither rows nor columns
//   (lengths that are sizes of a product too are read by another path);
// - an operand of rows and columns whose columns are not adjacent in memory;
// - a logical operation computed in anything but FLOAT, but for that of a padding mask; a
// comparison of two reals in BOOLEAN (that
//   of a real with an index is the shape of a band).
std::string crash_pattern(const graph::BackendGraph& graph);

}  // namespace attn::testing
