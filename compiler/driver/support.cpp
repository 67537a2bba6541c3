#include "compiler/driver/support.h"

#include <iterator>

#include "compiler/driver/build.h"
#include "compiler/driver/reasons.h"
#include "compiler/driver/verdicts.h"
#include "runtime/plan/memory.h"

namespace attn::driver {
namespace {

constexpr std::string_view kTiers[] = {"rules", "heuristics", "build"};

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

Verdict judge_pair(const ir::Attention& attention, const support::Source& source,
                   const sema::Bindings& bindings, const CompileOptions& options, Tier tier) {
  const ir::Attention trained = training_forward(attention);
  masks::MaskAnalyses analyses;
  CompileOptions how = options;
  if (how.analyses == nullptr) how.analyses = &analyses;
  planner::Pair searches(trained, how.lowering, context_of(how));
  Verdict verdict;
  for (const plan::Direction direction : {plan::Direction::forward, plan::Direction::backward}) {
    verdict = judged(searches.search(direction), source, bindings, how, tier);
    verdict.direction = direction;
    if (verdict.error) break;
  }
  return verdict;
}

}  // namespace attn::driver
