// Engine configs that are better than those of cuDNN's heuristics, by version, GPU and graph. The
// table is engine_choices.def; compilation tries them first.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "runtime/cudnn/known_bad.h"
#include "runtime/cudnn/last_words.h"

namespace attn::cudnn {

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
