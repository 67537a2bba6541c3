// What a graph asks of cuDNN's pointwise operations, in words that are the same for every size.
#pragma once

#include <set>
#include <string>

#include "runtime/graph/backend_graph.h"

namespace attn::testing {

// A line for each pointwise operation and what it is given:
//   "add f32 -> f32: virtual f32, tensor [b.qk] bf16; before the softmax, many rows"
// The axes of a tensor are those along which its elements differ. A graph with one row is served by
// another engine than one with many. A backward has other engines than a forward, with kernels of
// their own for what stands before the first product ("in delta"), between it and the second ("in
// the backward's weights") and behind ("in the backward's gradients").
std::set<std::string> combinations(const graph::BackendGraph& graph);

}  // namespace attn::testing
