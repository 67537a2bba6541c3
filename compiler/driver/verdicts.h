// What the tiers of judge() share.
#pragma once

#include "compiler/driver/support.h"

namespace attn::driver {

// The verdict on the first strategy that `judgement` accepts.
template <typename Judgement>
Result<Verdict> first_served(const ir::Attention& attention, const CompileOptions& options,
                             const Judgement& judgement) {
  ATTN_ASSIGN(const planner::OfPair pair, lowering_of(attention, options));
  planner::Candidates candidates(attention, pair, context_of(options));
  return planner::first_taken(candidates, [&](const planner::Candidate& candidate) {
    Result<Verdict> verdict = judgement(candidate.lowered->program);
    if (verdict.ok()) verdict->lowering = candidate.strategy->name;
    return verdict;
  });
}

// The rules' verdict; its `other_engines` may have the engine that serves it too.
Result<Verdict> by_rules(const ir::Attention& attention, const CompileOptions& options);

// What judge() returns for what a tier found, with the engines that the rules found.
Verdict concluded(Result<Verdict> found, std::vector<std::string> engines, Tier tier);

}  // namespace attn::driver
