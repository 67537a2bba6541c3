// A backend graph computed by loops: what it says, node by node, in double precision, each value
// rounded to the type of its tensor. Simple enough to be right by reading it.
//
// Where cuDNN's engines do other than the graph says (docs/cudnn.md), this does what the graph
// says, but for one rule of theirs that lowering counts on: of a row whose largest score is -inf
// the exponentials are 0, and what is divided by their sum, 0, is 0.
//
// A product is 0 behind the sizes of its batch. Rows of a ragged tensor behind the next batch's
// beginning are NaN when they are read, and not written.
#pragma once

#include <map>
#include <span>
#include <variant>

#include "runtime/base/status.h"
#include "runtime/graph/backend_graph.h"

namespace attn::host {

// Device memory from the first element of a tensor on, or what is given by value.
using Operand = std::variant<std::span<std::byte>, double>;

// One for each tensor that is not virtual. Errors: unsupported for random numbers, band masks and
// attention as one node; invalid_argument for an operand that is missing or too small.
Status run(const graph::BackendGraph& graph, const std::map<graph::Uid, Operand>& operands);

}  // namespace attn::host
