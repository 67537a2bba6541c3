// Known cuDNN bugs in graphs that it accepts, by cuDNN version, GPU and graph. The table is
// known_bad.def; compilation consults it.
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
  std::int64_t first, last;        // cudnnGetVersion(), inclusive
  std::int64_t first_sm, last_sm;  // inclusive
  std::int64_t engine;             // kAnyEngine: reject the graph
  Features features;               // the graph must have all of them
  std::string_view what, help, source;
};

std::span<const KnownBad> known_bad();

struct Circumstances {
  std::int64_t version = 0;
  std::int64_t sm = 0;
  Features features;
};

// The first matching row for whole graphs (kAnyEngine) or for this engine; null if nothing is
// known.
const KnownBad* find_known_bad(const Circumstances& circumstances,
                               std::int64_t engine = kAnyEngine);

}  // namespace attn::cudnn
