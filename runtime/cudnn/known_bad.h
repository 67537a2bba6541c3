// What is known to go wrong with graphs that cuDNN accepts, by its version, the GPU and the graph:
// known_bad.def, consulted when a plan is compiled.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "runtime/cudnn/graph_features.h"

namespace attn::cudnn {

inline constexpr std::int64_t kAnyEngine = -1;
inline constexpr std::int64_t kLastVersion = 999999;
inline constexpr std::int64_t kLastSm = 999;

struct KnownBad {
  std::string_view name;
  std::int64_t first, last;        // cudnnGetVersion(), both included
  std::int64_t first_sm, last_sm;  // both included
  std::int64_t engine;             // kAnyEngine: the graph must not be compiled at all
  Features features;               // all of which a graph must have
  std::string_view what, help, source;
};

std::span<const KnownBad> known_bad();

struct Circumstances {
  std::int64_t version = 0;
  std::int64_t sm = 0;
  Features features;
};

// The first row that holds for graphs as a whole (kAnyEngine), or for this engine; null when
// nothing is known against it.
const KnownBad* find_known_bad(const Circumstances& circumstances,
                               std::int64_t engine = kAnyEngine);

}  // namespace attn::cudnn
