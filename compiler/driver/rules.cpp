#include "compiler/driver/verdicts.h"

namespace attn::driver {
namespace {

// Engines with a strategy that gives a bound. 8-bit specs must also lower.
std::vector<std::string> engines_of(const ir::Attention& attention, const CompileOptions& options) {
  std::vector<std::string> names;
  const Result<planner::OfPair> pair = lowering_of(attention, options);
  if (!pair.ok() || pair->lowering != planner::kAnyLowering) return names;
  for (const engines::Engine& engine : engines::engines()) {
    if (engine.strategies.front().kind == planner::Strategy::Kind::slow) continue;
    planner::Candidates candidates(attention, engine.name, context_of(options));
    if (candidates.all().empty()) continue;
    if (!attention.quantize || candidates.next().ok()) names.emplace_back(engine.name);
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

Result<Verdict> by_rules(const ir::Attention& attention, const CompileOptions& options) {
  Result<Verdict> found =
      first_served(attention, options, [&](const plan::Program& program) -> Result<Verdict> {
        Verdict verdict;
        verdict.steps = program.steps.size();
        return verdict;
      });
  if (found.ok()) found->other_engines = engines_of(attention, options);
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
  Result<Verdict> found = by_rules(attention, options);
  std::vector<std::string> engines;
  if (found.ok()) engines = std::move(found->other_engines);
  return concluded(std::move(found), std::move(engines), Tier::rules);
}

}  // namespace attn::driver
