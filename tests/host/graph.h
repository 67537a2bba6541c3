// Evaluates a backend graph with simple loops, node by node, in double precision, rounding each
// value to the type of its tensor.
//
// Follows the graph where cuDNN's engines deviate from it (docs/cudnn.md), with one exception that
// lowering relies on: in a row whose largest score is -inf the exponentials are 0, and dividing by
// their sum of 0 gives 0.
//
// A product is 0 beyond the sizes of its batch. Rows of a ragged tensor past the start of the next
// batch are read as NaN and not written.
#pragma once

#include <map>
#include <span>
#include <variant>

#include "runtime/base/status.h"
#include "runtime/graph/backend_graph.h"

namespace attn::host {

// Memory starting at the first element of a tensor, or a value passed by value.
using Operand = std::variant<std::span<std::byte>, double>;

// Runs the graph with one operand for each tensor that is not virtual. Errors: unsupported for
// random numbers, band masks and attention as one node; invalid_argument for a missing or too small
// operand.
Status run(const graph::BackendGraph& graph, const std::map<graph::Uid, Operand>& operands);

}  // namespace attn::host
