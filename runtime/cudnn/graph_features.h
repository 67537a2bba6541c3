// Features of a graph that known cuDNN bugs depend on.
#pragma once

#include <bitset>
#include <cstdint>
#include <initializer_list>

#include "runtime/graph/backend_graph.h"

namespace attn::cudnn {

enum class Feature : std::uint8_t {
#define ATTN_GRAPH_FEATURE(name, what) name,
#include "runtime/cudnn/graph_features.def"
#undef ATTN_GRAPH_FEATURE
  kCount
};
using Features = std::bitset<static_cast<std::size_t>(Feature::kCount)>;

// The set of these.
Features features_of(std::initializer_list<Feature> list);

// Features of a valid graph, whether attention is many nodes in it or one. A graph of a single
// product has none.
Features features_of(const graph::BackendGraph& graph);

}  // namespace attn::cudnn
