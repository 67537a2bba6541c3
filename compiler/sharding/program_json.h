// Rank programs as JSON, for plan files (docs/plan-format.md) and scripts.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compiler/sharding/part_attention.h"
#include "compiler/sharding/rank_program.h"

namespace attn::sharding {

// Which plans compute a part: names of plans of the file, "" for a direction that is not compiled.
struct PartPlans {
  std::string forward, backward;
};

// Of the whole family: dtype, dims, sharding, and the program of each rank. `plans` is by rank and
// part.
nlohmann::ordered_json to_json(const ir::Attention& attention, const Sharding& sharding,
                               const std::vector<RankProgram>& programs,
                               const std::vector<std::vector<PartPlans>>& plans);

nlohmann::ordered_json to_json(const Intervals& set);  // [[begin, end], ..]

}  // namespace attn::sharding
