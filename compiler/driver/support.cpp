#include "compiler/driver/support.h"

#include <algorithm>
#include <iterator>

namespace attn::driver {
namespace {

constexpr std::string_view kTiers[] = {"rules", "heuristics", "build"};

void decide(Verdict& verdict, Tier tier, const Error& error) {
  verdict.tier = tier;
  verdict.outcome =
      error.code == ErrorCode::unsupported ? Verdict::Outcome::refused : Verdict::Outcome::failed;
  verdict.error = error;
}

// What the heuristics say of each cuDNN step.
void ask_heuristics(Verdict& verdict, const plan::Program& program, const CompileOptions& options) {
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(program)) {
    const Result<worker::Compiled> offered =
        worker::offer(step->graph, options.target.device_json, options.worker);
    if (!offered.ok()) return decide(verdict, Tier::heuristics, offered.error());
    verdict.cudnn_version = offered->cudnn_version;
    if (verdict.engine < 0) verdict.engine = offered->step.engine;
  }
}

void build(Verdict& verdict, const Result<plan::Plan>& plan) {
  if (!plan.ok()) return decide(verdict, Tier::build, plan.error());
  verdict.cudnn_version = plan->cudnn_version;
  for (const plan::CompiledStep& step : plan->compiled) {
    if (verdict.engine < 0) verdict.engine = step.engine;
    verdict.workspace_bytes = std::max(verdict.workspace_bytes, step.workspace_bytes);
  }
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
  Verdict verdict;
  const Result<plan::Program> program = lower(attention);
  if (!program.ok()) {
    decide(verdict, Tier::rules, program.error());
    return verdict;
  }
  verdict.tier = tier;
  verdict.steps = program->steps.size();
  if (tier == Tier::heuristics) ask_heuristics(verdict, *program, options);
  if (tier == Tier::build) build(verdict, compile(attention, source, bindings, options));
  return verdict;
}

}  // namespace attn::driver
