// Graphs to test with: one attention that never changes, and any number of random valid ones.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "runtime/graph/backend_graph.h"

namespace attn::graph::testing {

// Causal attention with softcap, stats and GQA: B 2, Hq 4, Hkv 2, Sq 3, Skv 5, D 8, bf16. Uids are
// consecutive from 1; the plan file of format version 1 that the tests keep was made from it.
BackendGraph sample_graph();

// Attention with lengths, k by pages, ragged q and o, and dropout: B 2, H 2, Sq 3, Skv 5, D 8, f16.
BackendGraph controlled_graph();

// Attention as one node with everything that it may have, and a bias, a softcap's division and two
// bands in its score: B 2, H 2, Sq 3, Skv 8 in pages of 4, D 8, f16. Its nodes: 0 div, 1 add, 2 and
// 3 band masks, 4 sdpa_forward.
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

// The same graph with other uids, other names and other positions.
BackendGraph disguised(const BackendGraph& graph, Random& random);

// The number that disguised() gives to a uid is only known from the graphs: the uid of `other` that
// stands where `uid` stands in `graph`.
Uid counterpart(const BackendGraph& graph, const BackendGraph& other, Uid uid);

}  // namespace attn::graph::testing
