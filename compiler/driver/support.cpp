#include "compiler/driver/support.h"

#include <algorithm>
#include <iterator>

#include "runtime/plan/memory.h"

namespace attn::driver {
namespace {

constexpr std::string_view kTiers[] = {"rules", "heuristics", "build"};

// The verdict on the first strategy that `judgement` accepts.
template <typename Judgement>
Result<Verdict> first_served(const ir::Attention& attention, const CompileOptions& options,
                             const Judgement& judgement) {
  ATTN_ASSIGN(const std::string lowering, lowering_of(attention, options));
  planner::Candidates candidates(attention, lowering, context_of(options));
  return planner::first_taken(candidates, [&](const planner::Candidate& candidate) {
    Result<Verdict> verdict = judgement(candidate.lowered->program);
    if (verdict.ok()) verdict->lowering = candidate.strategy->name;
    return verdict;
  });
}

// Those of options.lowering of which a strategy gives a bound, except slow ones. Most 8-bit
// attention is refused later, when it is lowered.
std::vector<std::string> engines_of(const ir::Attention& attention, const CompileOptions& options) {
  std::vector<std::string> names;
  const Result<std::string> lowering = lowering_of(attention, options);
  if (!lowering.ok() || *lowering != planner::kAnyLowering) return names;
  for (const engines::Engine& engine : engines::engines()) {
    if (engine.strategies.front().kind == planner::Strategy::Kind::slow) continue;
    planner::Candidates candidates(attention, engine.name, context_of(options));
    if (candidates.all().empty()) continue;
    if (!attention.quantize || candidates.next().ok()) names.emplace_back(engine.name);
  }
  return names;
}

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

// Asks cuDNN's heuristics about each cuDNN step.
Result<Verdict> by_heuristics(const ir::Attention& attention, const CompileOptions& options) {
  return first_served(attention, options, [&](const plan::Program& program) -> Result<Verdict> {
    Verdict verdict;
    verdict.steps = program.steps.size();
    std::vector<graph::BackendGraph> graphs;
    for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(program)) {
      if (std::ranges::find(graphs, step->graph) == graphs.end()) graphs.push_back(step->graph);
    }
    if (graphs.empty()) return verdict;
    ATTN_ASSIGN(const std::vector<worker::Compiled> offered,
                worker::offer(graphs, options.target.device_json, options.worker));
    verdict.cudnn_version = offered.front().cudnn_version;
    verdict.engine = offered.front().step.engine;
    return verdict;
  });
}

Result<Verdict> by_build(const ir::Attention& attention, const support::Source& source,
                         const sema::Bindings& bindings, const CompileOptions& options) {
  ATTN_ASSIGN(const Compiled compiled, compile(attention, source, bindings, options));
  Verdict verdict;
  verdict.lowering = compiled.plan.lowering;
  verdict.steps = compiled.plan.program.steps.size();
  verdict.cudnn_version = compiled.plan.cudnn_version;
  for (const plan::CompiledStep& step : compiled.plan.compiled) {
    if (verdict.engine < 0) verdict.engine = step.engine;
  }
  verdict.workspace_bytes = plan::memory_of(compiled.plan).total();
  return verdict;
}

Verdict refusal(const Error& error) {
  Verdict verdict;
  verdict.outcome =
      error.code == ErrorCode::unsupported ? Verdict::Outcome::refused : Verdict::Outcome::failed;
  verdict.error = error;
  return verdict;
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
  Result<Verdict> found = by_rules(attention, options);
  if (!found.ok()) return refusal(found.error());
  std::vector<std::string> others = std::move(found->other_engines);
  if (tier == Tier::heuristics) found = by_heuristics(attention, options);
  if (tier == Tier::build) found = by_build(attention, source, bindings, options);
  Verdict verdict = found.ok() ? std::move(found).value() : refusal(found.error());
  verdict.other_engines = std::move(others);
  const engines::Engine* own = planner::engine_of(verdict.lowering);
  if (own != nullptr) std::erase(verdict.other_engines, own->name);
  verdict.tier = tier;
  return verdict;
}

Verdict judge_pair(const ir::Attention& attention, const support::Source& source,
                   const sema::Bindings& bindings, const CompileOptions& options, Tier tier) {
  const ir::Attention trained = training_forward(attention);
  passes::MaskAnalyses analyses;
  Verdict verdict;
  for (const plan::Direction direction : {plan::Direction::forward, plan::Direction::backward}) {
    CompileOptions how = options;
    if (how.analyses == nullptr) how.analyses = &analyses;
    how.direction = direction;
    how.paired = true;
    verdict = judge(trained, source, bindings, how, tier);
    verdict.direction = direction;
    if (verdict.error) break;
  }
  return verdict;
}

}  // namespace attn::driver
