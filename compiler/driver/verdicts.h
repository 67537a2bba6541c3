// What the tiers of judge() share.
#pragma once

#include "compiler/driver/support.h"

namespace attn::driver {

// The verdict on the first strategy that `judgement` accepts.
template <typename Judgement>
Result<Verdict> first_served(planner::Search& search, const Judgement& judgement) {
  return search.first_taken([&](const planner::Candidate& candidate) {
    Result<Verdict> verdict = judgement(candidate.lowered->program);
    if (verdict.ok()) verdict->lowering = candidate.strategy->name;
    return verdict;
  });
}

// The rules' verdict; its `other_engines` may have the engine that serves it too.
Result<Verdict> by_rules(planner::Search& search);

// What judge() returns for what a tier found, with the engines that the rules found.
Verdict concluded(Result<Verdict> found, std::vector<std::string> engines, Tier tier);

}  // namespace attn::driver
