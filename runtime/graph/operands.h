// The tensors that a node reads and writes, in the order of the node's fields, and its operation.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/backend_graph.h"

namespace attn::graph {

// Inputs that every node of its kind has, in order: matmul a, b; pointwise x, b, t if present;
// reduction x; rng seed, offset; paged load container, table, lengths; band mask x, fill; block
// dequantize x, scale; sdpa q, k, v.
std::vector<Uid> fixed_inputs_of(const Node& node);

// Optional inputs that are present: matmul m, n, k; band mask bound, lengths_q, lengths_kv; sdpa
// modified, sink, then those of sdpa_inputs.def. (The `score` of an sdpa is not an input: the nodes
// before it read it.)
struct NamedInput {
  std::string_view name;
  Uid uid = 0;
};
std::vector<NamedInput> named_inputs_of(const Node& node);

// All inputs: the fixed ones, then the named ones.
std::vector<Uid> inputs_of(const Node& node);

Uid output_of(const Node& node);
// The output, and for an sdpa its statistics.
std::vector<Uid> outputs_of(const Node& node);

// Where the node names tensors: inputs, outputs, and the `score` of an sdpa.
std::vector<Uid*> uids_of(Node& node);

// Whether a node writes `uid`. Visits every node: for many tensors call written_by() once.
bool is_written(const BackendGraph& graph, Uid uid);
std::set<Uid> written_by(const BackendGraph& graph);

// Replaces every input `from` by `to`.
void replace_inputs(Node& node, Uid from, Uid to);

// Name of the operation without its compute type: "matmul", "mul", "reduce_max".
std::string mnemonic_of(const Node& node);

DType compute_of(const Node& node);

constexpr bool is_comparison(PointwiseMode mode) {
  return mode >= PointwiseMode::cmp_eq && mode <= PointwiseMode::cmp_le;
}
// Whether the mode is logical, of two operands.
constexpr bool is_logical(PointwiseMode mode) {
  return mode == PointwiseMode::logical_and || mode == PointwiseMode::logical_or;
}

// The SdpaForward of the graph, which is its last node, or null.
const SdpaForward* sdpa_of(const BackendGraph& graph);

}  // namespace attn::graph
