// The tensors a node reads and writes, in the order in which it names them. (Shared by the sources
// of this room and by whoever walks a graph.)
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/backend_graph.h"

namespace attn::graph {

// Inputs that a node of its kind always has, in order: matmul a, b and pointwise x, b, t as far as
// present; reduction x; rng seed, offset; paged load container, table, lengths; band mask x, fill;
// sdpa q, k, v.
std::vector<Uid> fixed_inputs_of(const Node& node);

// Inputs that may be absent, those that are there: matmul m, n, k; band mask bound, lengths_q,
// lengths_kv; sdpa modified, sink, then those of sdpa_inputs.def. (The score that an sdpa lends to
// the nodes before it is none of its inputs.)
struct NamedInput {
  std::string_view name;
  Uid uid = 0;
};
std::vector<NamedInput> named_inputs_of(const Node& node);
// Every such name that the node's kind has, and setting one.
std::vector<std::string_view> input_names_of(const Node& node);
void set_named_input(Node& node, std::string_view name, Uid uid);

// All: the fixed ones, then the named ones.
std::vector<Uid> inputs_of(const Node& node);

Uid output_of(const Node& node);
// The same, and of an sdpa its statistics.
std::vector<Uid> outputs_of(const Node& node);

// Whether a node writes it. Looks at every node: for many tensors of a graph ask written_by() once.
bool is_written(const BackendGraph& graph, Uid uid);
std::set<Uid> written_by(const BackendGraph& graph);

// Every input that is `from` becomes `to`.
void replace_inputs(Node& node, Uid from, Uid to);

// "matmul", "mul", "reduce_max": what a node does, without its compute type.
std::string mnemonic_of(const Node& node);

DType compute_of(const Node& node);

// The last node of a graph in which attention is one node, else null.
const SdpaForward* sdpa_of(const BackendGraph& graph);

}  // namespace attn::graph
