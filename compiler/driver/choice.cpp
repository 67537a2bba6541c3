#include "compiler/driver/choice.h"

#include <algorithm>

#include "runtime/plan/memory.h"

namespace attn::driver {
namespace {

using planner::Candidate;
using planner::Refusal;
using planner::Search;
using planner::Strategy;

plan::Alternative told(const Candidate& candidate) {
  return {std::string(candidate.strategy->name), candidate.predicted_ms(), candidate.measured_ms,
          candidate.failed ? candidate.failed->message : "", candidate.signature};
}
plan::Alternative told(const Refusal& refusal) {
  return {refusal.lowering, 0, {}, refusal.error.message};
}

// Predicted time of a candidate that is not tried. One with a lower bound than the taken one's time
// was lowered; for the others the bound counts, whether they were lowered or not.
double predicted(const Candidate& candidate, const Candidate& taken) {
  return candidate.bound < taken.rank() ? candidate.predicted_ms() : candidate.bound;
}

// One for each engine of which no strategy can express the attention, with its first reason. Slow
// ones are not expected to compete.
void add_refused_engines(const Search& search, std::vector<plan::Alternative>& all) {
  for (const engines::Engine& engine : engines::engines()) {
    const auto is_of_engine = [&engine](std::string_view strategy) {
      return planner::engine_of(strategy) == &engine;
    };
    if (engine.strategies.front().kind == Strategy::Kind::slow ||
        std::ranges::any_of(search.all(), is_of_engine,
                            [](const Candidate& candidate) { return candidate.strategy->name; })) {
      continue;
    }
    const auto& refused = search.refused().all;
    const auto first = std::ranges::find_if(refused, is_of_engine, &Refusal::lowering);
    if (first != refused.end()) all.push_back(told(*first));
  }
}

// The first program of the strategy that failed, or null.
const Candidate* failed_of(const Search& search, const Strategy* strategy) {
  const auto found = std::ranges::find_if(search.tried(), [&](const Candidate* each) {
    return each->failed && each->strategy == strategy;
  });
  return found == search.tried().end() ? nullptr : *found;
}

// Adds the other strategies, unless all were predicted to take as long as the taken one and none
// failed.
void add_others(const Search& search, const Candidate& taken, std::vector<plan::Alternative>& all) {
  std::vector<plan::Alternative> others;
  bool differ = false;
  for (const Candidate& candidate : search.all()) {
    if (candidate.strategy == taken.strategy || candidate.program > 0) continue;
    if (candidate.strategy->kind == Strategy::Kind::slow) continue;
    plan::Alternative other = told(candidate);
    other.predicted_ms = predicted(candidate, taken);
    const bool same = other.predicted_ms == taken.rank() && !other.measured_ms;
    differ |= !same;
    if (const auto long_build = candidate.long_build(); long_build && !other.measured_ms) {
      other = told(Refusal{std::string(candidate.strategy->name), *long_build});
      differ = true;
    }
    if (const Candidate* failed = failed_of(search, candidate.strategy)) {
      other = told(*failed);
      differ |= failed->failed->code != ErrorCode::unsupported;
    }
    // Another form of the same kernel, which may not even apply, is no alternative to list.
    const bool is_form = same && candidate.strategy->kind == Strategy::Kind::alternative;
    if (!is_form || !other.refused.empty()) others.push_back(std::move(other));
  }
  if (differ) std::ranges::move(others, std::back_inserter(all));
}

// The place of a strategy in the order of the engines.
std::ptrdiff_t place_of(std::string_view strategy) {
  const std::span<const Strategy> all = planner::strategies(planner::kAnyOrSlow);
  return std::ranges::find(all, strategy, &Strategy::name) - all.begin();
}

// A primary strategy that cannot express the attention is reported where a later one was taken, and
// any that failed or was not tried for its long build; the other programs of the taken one are in
// the plan's choice.
std::vector<Refusal> reported(const Search& search, const Strategy& taken) {
  std::vector<Refusal> reported;
  for (const Refusal& refusal : search.refused().told) {
    if (taken.kind != Strategy::Kind::alternative &&
        place_of(refusal.lowering) < place_of(taken.name)) {
      reported.push_back(refusal);
    }
  }
  for (const Candidate* each : search.tried()) {
    if (!each->failed || each->strategy == &taken) continue;
    reported.push_back({std::string(each->strategy->name), *each->failed});
  }
  for (const Candidate& each : search.all()) {
    const std::optional<Error> long_build = each.long_build();
    const bool is_tried = std::ranges::find(search.tried(), &each) != search.tried().end();
    if (!long_build || is_tried || each.program > 0 || each.strategy == &taken) continue;
    reported.push_back({std::string(each.strategy->name), *long_build});
  }
  return reported;
}

std::vector<RunnerUp> lowered_of(const Search& search, const Strategy& taken) {
  std::vector<RunnerUp> lowered;
  for (const Candidate& candidate : search.all()) {
    if (candidate.strategy == &taken || candidate.program > 0 || !candidate.lowered) continue;
    const plan::Program& program = candidate.lowered->program;
    lowered.push_back({std::string(candidate.strategy->name), plan::memory_of(program).total(),
                       !plan::steps_of<plan::CudnnStep>(program).empty()});
  }
  return lowered;
}

}  // namespace

std::vector<plan::Alternative> choice_of(const Search& search, const Candidate& taken) {
  std::vector<plan::Alternative> all = {told(taken)};
  for (const Candidate* each : search.tried()) {
    if (each->failed && each->strategy == taken.strategy) all.push_back(told(*each));
  }
  add_others(search, taken, all);
  add_refused_engines(search, all);
  for (const Refusal& each : search.refused().left_out) all.push_back(told(each));
  return all;
}

std::vector<plan::Alternative> choice_of_measured(const Search& search) {
  std::vector<plan::Alternative> all;
  for (const Candidate* each : search.tried()) {
    const bool is_first = each->measured_ms && (all.empty() || !all.front().measured_ms ||
                                                *each->measured_ms < *all.front().measured_ms);
    all.insert(is_first ? all.begin() : all.end(), told(*each));
  }
  return all;
}

Compiled with_others(plan::Plan plan, const Search& search, const Strategy& taken) {
  return {std::move(plan), reported(search, taken), planner::in_order(search.refused().all),
          lowered_of(search, taken)};
}

}  // namespace attn::driver
