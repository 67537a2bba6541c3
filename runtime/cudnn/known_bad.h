// Known cuDNN bugs in graphs that it accepts, by cuDNN version, GPU and graph. The table is
// known_bad.def; compilation consults it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/cudnn/graph_features.h"
#include "runtime/cudnn/last_words.h"

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

// Engine configs that are better than those of cuDNN's heuristics, by version, GPU and graph. The
// table is engine_choices.def; compilation tries them first.
struct ChoiceRow {
  std::string_view name;
  std::int64_t first, last;        // cudnnGetVersion(), inclusive
  std::int64_t first_sm, last_sm;  // inclusive
  Features features;               // the graph must have all of them
  EngineChoice choice;             // knobs of ascending type
  std::string_view source;
};

std::span<const ChoiceRow> engine_choices();

// The choices of the matching rows, in their order.
std::vector<EngineChoice> choices_for(const Circumstances& circumstances);

}  // namespace attn::cudnn
