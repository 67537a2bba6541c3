// What each rank does (runtime/ranks/program.h), for a sharding.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/sharding/sharding.h"
#include "runtime/ranks/program.h"

namespace attn::sharding {

// Tensors and sizes of the attention, as callers see them: a division without ranks. Its backward
// has gradient::wanted_gradients().
ranks::Division frame_of(const ir::Attention& attention);

struct RankPrograms {
  ranks::Division division;                 // without exchanges and names of plans
  std::vector<std::vector<Part>> of_teams;  // its parts, with what only the compiler knows

  const std::vector<Part>& parts_of(int rank) const {
    return of_teams[static_cast<std::size_t>(rank / division.groups_of_heads)];
  }
};

RankPrograms rank_programs(const Sharding& sharding, const WorkMap& map,
                           const ir::Attention& attention);

}  // namespace attn::sharding
