#include "compiler/driver/support.h"

#include <iterator>

#include "compiler/driver/build.h"
#include "runtime/plan/memory.h"

namespace attn::driver {
namespace {

using planner::Search;

constexpr std::string_view kTiers[] = {"rules", "heuristics", "build"};

// The verdict on the first strategy that `judgement` accepts.
template <typename Judgement>
Result<Verdict> first_served(planner::Search& search, const Judgement& judgement) {
  return search.first_taken([&](const planner::Candidate& candidate) {
    Result<Verdict> verdict = judgement(candidate.lowered->program);
    if (verdict.ok()) verdict->lowering = candidate.strategy->name;
    return verdict;
  });
}

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

// The rules' verdict; its `other_engines` may have the engine that serves it too.
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

// What judge() returns for what a tier found, with the engines that the rules found.
Verdict concluded(Result<Verdict> found, std::vector<std::string> engines, Tier tier) {
  Verdict verdict = found.ok() ? std::move(found).value() : refusal(found.error());
  verdict.other_engines = std::move(engines);
  const engines::Engine* own = planner::engine_of(verdict.lowering);
  if (own != nullptr) std::erase(verdict.other_engines, own->name);
  verdict.tier = tier;
  return verdict;
}

// Asks cuDNN's heuristics about each cuDNN step.
Result<Verdict> by_heuristics(planner::Search& search, const CompileOptions& options) {
  search.begin();
  return first_served(search, [&](const plan::Program& program) -> Result<Verdict> {
    Verdict verdict;
    verdict.steps = program.steps.size();
    const std::vector<graph::BackendGraph> graphs = graphs_of(program).all;
    if (graphs.empty()) return verdict;
    const Result<std::vector<worker::Compiled>> offered =
        worker::offer(graphs, options.target.device_json, options.worker);
    if (!offered.ok()) return with_reason(offered.error());
    verdict.cudnn_version = offered->front().cudnn_version;
    verdict.engine = offered->front().step.engine;
    return verdict;
  });
}

Result<Verdict> by_build(planner::Search& search, const support::Source& source,
                         const sema::Bindings& bindings, const CompileOptions& options) {
  ATTN_ASSIGN(const Compiled compiled, compile(search, source, bindings, options));
  Verdict verdict;
  verdict.lowering = compiled.plan.strategy;
  verdict.steps = compiled.plan.program.steps.size();
  verdict.cudnn_version = compiled.plan.cudnn_version;
  for (const plan::CompiledStep& step : compiled.plan.compiled) {
    if (verdict.engine < 0) verdict.engine = step.engine;
  }
  verdict.workspace_bytes = plan::memory_of(compiled.plan).total();
  return verdict;
}

// The verdict of the search, which may be an error.
Verdict judged(const Result<std::unique_ptr<planner::Search>>& search,
               const support::Source& source, const sema::Bindings& bindings,
               const CompileOptions& options, Tier tier) {
  Result<Verdict> found = search.ok() ? by_rules(**search) : search.error();
  if (!found.ok()) return concluded(std::move(found), {}, Tier::rules);
  std::vector<std::string> engines = std::move(found->other_engines);
  if (tier == Tier::heuristics) found = by_heuristics(**search, options);
  if (tier == Tier::build) found = by_build(**search, source, bindings, options);
  return concluded(std::move(found), std::move(engines), tier);
}

}  // namespace

std::string_view to_string(Tier tier) { return kTiers[static_cast<std::size_t>(tier)]; }

std::optional<Tier> parse_tier(std::string_view text) {
  const auto* found = std::ranges::find(kTiers, text);
  if (found == std::end(kTiers)) return std::nullopt;
  return static_cast<Tier>(found - std::begin(kTiers));
}

Verdict judge(const ir::Attention& attention, const support::Source& source,
              const sema::Bindings& bindings, const CompileOptions& options, Tier tier) {
  return judged(search_of(attention, options), source, bindings, options, tier);
}

Verdict judge_by_rules(const ir::Attention& attention, const CompileOptions& options) {
  const auto search = search_of(attention, options);
  Result<Verdict> found = search.ok() ? by_rules(**search) : search.error();
  std::vector<std::string> engines;
  if (found.ok()) engines = std::move(found->other_engines);
  return concluded(std::move(found), std::move(engines), Tier::rules);
}

Verdict judge_pair(const ir::Attention& attention, const support::Source& source,
                   const sema::Bindings& bindings, const CompileOptions& options, Tier tier) {
  const ir::Attention trained = training_forward(attention);
  masks::MaskAnalyses analyses;
  CompileOptions how = options;
  if (how.analyses == nullptr) how.analyses = &analyses;
  planner::Pair searches(trained, how.lowering, context_of(how));
  Verdict verdict;
  const auto judge_both = [&] {
    for (const plan::Direction direction : {plan::Direction::forward, plan::Direction::backward}) {
      verdict = judged(searches.search(direction), source, bindings, how, tier);
      verdict.direction = direction;
      if (verdict.error) return;
    }
  };
  do {
    judge_both();
  } while (verdict.error && searches.take_other(*verdict.direction, *verdict.error));
  return verdict;
}

}  // namespace attn::driver
