// Test graphs: one attention that never changes, and any number of random valid graphs.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "runtime/graph/backend_graph.h"

namespace attn::graph::testing {

// Causal attention with softcap, stats and GQA: B 2, Hq 4, Hkv 2, Sq 3, Skv 5, D 8, bf16. Uids are
// consecutive from 1. The plan file of format version 1 in the tests was made from it.
BackendGraph sample_graph();

// Attention with lengths, paged k, ragged q and o, and dropout: B 2, H 2, Sq 3, Skv 5, D 8, f16.
BackendGraph controlled_graph();

// A product of two 8-bit tensors with scales of blocks, along the columns of q and the rows of v: B
// 2, H 2, Sq 3, 64 between, D 40. Nodes: 0 and 1 block dequantize, 2 matmul.
BackendGraph block_scaled_graph();

// Attention as one node with every optional input, and with a bias, a softcap's division and two
// bands in its score: B 2, H 2, Sq 3, Skv 8 in pages of 4, D 8, f16. Nodes: 0 div, 1 add, 2 and 3
// band masks, 4 sdpa_forward.
BackendGraph unified_graph();

// The same sequence on every machine (no standard distribution is used).
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t bits() { return engine_(); }
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(engine_() % limit); }
  bool chance(std::size_t one_in) { return below(one_in) == 0; }
  template <typename T>
  const T& pick(const std::vector<T>& values) {
    return values[below(values.size())];
  }

 private:
  std::mt19937_64 engine_;
};

// A valid graph with random shapes, score operations, names and positions.
BackendGraph random_graph(Random& random);

// The same graph with different uids, names and positions.
BackendGraph disguised(const BackendGraph& graph, Random& random);

// The uid of `other` that corresponds to `uid` in `graph`, for graphs renumbered by disguised().
Uid counterpart(const BackendGraph& graph, const BackendGraph& other, Uid uid);

// Canonical text with a line for each object in a list.
inline std::string in_lines(std::string json) {
  for (std::size_t at = 0; (at = json.find("},{", at)) != std::string::npos;)
    json.insert(at += 2, "\n");
  return json + "\n";
}

}  // namespace attn::graph::testing
