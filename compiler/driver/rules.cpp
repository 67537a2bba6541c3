#include "compiler/driver/verdicts.h"

namespace attn::driver {
namespace {

using planner::Search;

// Engines with a strategy that gives a bound. 8-bit specs must also lower.
std::vector<std::string> engines_of(Search& search) {
  std::vector<std::string> names;
  if (!search.takes_any()) return names;
  bool more = search.attention().quantize.has_value();
  while (more) {
    const Result<planner::Candidate*> next = search.next();
    more = next.ok() && *next != nullptr;
  }
  for (const engines::Engine& engine : engines::engines()) {
    const bool can = std::ranges::any_of(search.all(), [&engine](const planner::Candidate& each) {
      return planner::engine_of(each.strategy->name) == &engine;
    });
    if (can) names.emplace_back(engine.name);
  }
  return names;
}

Verdict refusal(const Error& error) {
  Verdict verdict;
  verdict.outcome =
      error.code == ErrorCode::unsupported ? Verdict::Outcome::refused : Verdict::Outcome::failed;
  verdict.error = error;
  return verdict;
}

}  // namespace

Result<Verdict> by_rules(Search& search) {
  Result<Verdict> found =
      first_served(search, [&](const plan::Program& program) -> Result<Verdict> {
        Verdict verdict;
        verdict.steps = program.steps.size();
        return verdict;
      });
  if (found.ok()) found->other_engines = engines_of(search);
  return found;
}

Verdict concluded(Result<Verdict> found, std::vector<std::string> engines, Tier tier) {
  Verdict verdict = found.ok() ? std::move(found).value() : refusal(found.error());
  verdict.other_engines = std::move(engines);
  const engines::Engine* own = planner::engine_of(verdict.lowering);
  if (own != nullptr) std::erase(verdict.other_engines, own->name);
  verdict.tier = tier;
  return verdict;
}

Verdict judge_by_rules(const ir::Attention& attention, const CompileOptions& options) {
  const auto search = search_of(attention, options);
  Result<Verdict> found = search.ok() ? by_rules(**search) : search.error();
  std::vector<std::string> engines;
  if (found.ok()) engines = std::move(found->other_engines);
  return concluded(std::move(found), std::move(engines), Tier::rules);
}

}  // namespace attn::driver
