// What a plan and its caller are told of a search.
#pragma once

#include "compiler/driver/driver.h"

namespace attn::driver {

// The candidate that is taken, and what else was considered: alone of its engine where all were
// predicted to take as long, none failed and none was measured.
std::vector<plan::Alternative> choice_of(const planner::Search& search,
                                         const planner::Candidate& taken);

// The same where all were measured: the fastest first.
std::vector<plan::Alternative> choice_of_measured(const planner::Search& search);

// The plan of the candidate that was taken, with what was not.
Compiled with_others(plan::Plan plan, const planner::Search& search,
                     const planner::Strategy& taken);

}  // namespace attn::driver
