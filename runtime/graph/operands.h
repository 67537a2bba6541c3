// The tensors a node reads and writes, in the order in which it names them. (Shared by the sources
// of this room and by whoever walks a graph.)
#pragma once

#include <vector>

#include "runtime/graph/backend_graph.h"

namespace attn::graph {

// Inputs in order: matmul a, b, then its overrides m, n, k and pointwise x, b, t as far as present;
// reduction x; rng seed, offset; paged load container, table, lengths.
std::vector<Uid> inputs_of(const Node& node);

Uid output_of(const Node& node);

// Every input that is `from` becomes `to`.
void replace_inputs(Node& node, Uid from, Uid to);

// "matmul", "mul", "reduce_max": what a node does, without its compute type.
std::string mnemonic_of(const Node& node);

DType compute_of(const Node& node);

}  // namespace attn::graph
