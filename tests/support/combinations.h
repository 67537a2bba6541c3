// Describes the pointwise operations of a graph, independent of sizes.
#pragma once

#include <set>
#include <string>

#include "runtime/graph/backend_graph.h"

namespace attn::testing {

// One line for each combination of a pointwise operation and its operands:
//   "add f32 -> f32: virtual f32, tensor [b.qk] bf16; before the softmax, many rows"
// The axes of a tensor are those along which its elements differ. Graphs with one row and with many
// rows use different engines. A backward has engines of its own, with separate kernels for the
// operations before the first product ("in delta"), between it and the second ("in the backward's
// weights"), and after that ("in the backward's gradients").
std::set<std::string> combinations(const graph::BackendGraph& graph);

}  // namespace attn::testing
