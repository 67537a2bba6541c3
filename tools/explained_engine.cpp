#include "tools/explained_engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/console.h"
#include "tools/explained_kernels.h"
#include "tools/strategies.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

std::string when_text(const plan::Step& step) {
  const auto* derive = std::get_if<plan::DeriveStep>(&step);
  if (derive != nullptr && derive->once) return ", once, when the plan is loaded";
  const std::int64_t turns = plan::turns_of(step);
  return turns == 1 ? "" : fmt::format(", {} times", turns);
}

// What the prediction means for the matrix units, where it is of just the scores in the band.
struct Prediction {
  double tflops = 0;
  double peak = 0;  // TFLOP/s of the GPU's products of this type

  double share() const { return tflops / peak; }
};

std::optional<Prediction> prediction_of(const Explanation& explanation,
                                        const ExplainedProgram& program) {
  if (!program.compiled || explanation.lengths || !explanation.residual.empty()) return {};
  const plan::Plan& plan = program.compiled->plan;
  const target::Gpu gpu = target::gpu_of(plan.target);
  if (plan.choice.empty() || plan.choice.front().predicted_ms <= 0 || gpu.matrix_rate <= 0)
    return {};
  const double flops = program.flops * explanation.share;
  return Prediction{flops / plan.choice.front().predicted_ms * 1e-9, gpu.rate(program.dtype)};
}

std::string prediction_text(const Explanation& explanation, const ExplainedProgram& program) {
  const std::optional<Prediction> predicted = prediction_of(explanation, program);
  if (!predicted) return "";
  return fmt::format("  predicted {:.0f} TFLOP/s: {} of the {:.0f} of dense {}-bit products\n",
                     predicted->tflops, percent_text(predicted->share()), predicted->peak,
                     8 * size_of(program.dtype));
}

std::string engine_text(const Explanation& explanation, const ExplainedProgram& program) {
  const plan::Plan& plan = program.compiled->plan;
  std::string text = fmt::format("  for {} (sm_{})", plan.target.name, plan.target.sm);
  if (plan.cudnn_version != 0) text += " by cuDNN " + cudnn_text(plan.cudnn_version);
  text += fmt::format("\n  workspace in all {}\n", memory_text(plan::memory_of(plan)));
  return text + prediction_text(explanation, program);
}

std::string steps_text(const plan::Plan& plan) {
  std::string text;
  auto compiled = plan.compiled.begin();
  const std::vector<ExplainedKernels> kernels = explain_kernels(plan);
  for (std::size_t i = 0; i < plan.program.steps.size(); ++i) {
    const plan::Step& step = plan.program.steps[i];
    if (const auto* derive = std::get_if<plan::DeriveStep>(&step)) {
      text += fmt::format("  step {}: an attnc kernel derives {}{}\n", i,
                          fmt::join(derive->outputs, ", "), when_text(step));
    } else if (const auto* launches = std::get_if<plan::KernelStep>(&step)) {
      text += fmt::format("  step {}: attnc kernels write {}{}\n", i,
                          fmt::join(launches->outputs, ", "), when_text(step));
    } else {
      text +=
          fmt::format("  step {}: cuDNN's engine {} of heuristic {}, knobs {}, workspace {}{}\n", i,
                      compiled->engine, compiled->heuristic, knobs_text(compiled->knobs),
                      bytes_text(compiled->workspace_bytes), when_text(step));
      ++compiled;
    }
    for (const ExplainedKernels& each : kernels) {
      if (each.step == i) text += to_text(each);
    }
  }
  return text;
}

// What its predictions may be wrong about.
std::string doubts_text(const ExplainedProgram& program) {
  std::string text;
  for (const std::string& doubt : program.doubts) {
    text += wrapped("  ", shown(doubt), line_width());
  }
  return text;
}

std::string section(const std::string& before, const char* name, const std::string& text) {
  return text.empty() ? "" : fmt::format("\n{}{}\n{}", before, name, text);
}

}  // namespace

std::string engine_sections(const Explanation& explanation, const ExplainedProgram& program,
                            const std::string& before) {
  if (program.refusal) {
    const std::string target =
        program.refused_target.empty() ? "" : " for " + program.refused_target;
    return section(before, "engine",
                   fmt::format("  none{}\n{}", target,
                               full_error_text(*program.refusal, program.source.get())));
  }
  if (!program.compiled) {
    return section(
        before, "engine",
        fmt::format("  not known: cuDNN could not be loaded ({})\n", explanation.why_not_compiled));
  }
  return section(before, "engine", engine_text(explanation, program)) +
         section(before, "strategies", strategies_text(considered(*program.compiled))) +
         section(before, "predictions", doubts_text(program)) +
         section(before, "steps", steps_text(program.compiled->plan));
}

Json engine_json(const Explanation& explanation, const ExplainedProgram& program) {
  if (program.refusal) {
    return {{"known", false},
            {"target", program.refused_target},
            {"error", error_json(*program.refusal, nullptr)}};
  }
  if (!program.compiled) return {{"known", false}, {"why", explanation.why_not_compiled}};
  const plan::Plan& plan = program.compiled->plan;
  Json json = {{"known", true},
               {"target", plan.target.name},
               {"sm", plan.target.sm},
               {"cudnn", cudnn_text(plan.cudnn_version)},
               {"workspace_bytes", plan::memory_of(plan).total()},
               {"steps", Json::array()}};
  if (!plan.strategy.empty()) {
    json["strategy"] = plan.strategy;
    json["refused"] = refusals_json(program.compiled->refused);
  }
  if (!plan.choice.empty()) json["choice"] = choice_json(plan);
  json["considered"] = to_json(considered(*program.compiled));
  json["doubts"] = program.doubts;
  if (const auto predicted = prediction_of(explanation, program)) {
    json["predicted_tflops"] = predicted->tflops;
    json["peak_tflops"] = predicted->peak;
  }
  if (!program.parts.empty()) json["parts"] = program.parts;
  for (const plan::CompiledStep& step : plan.compiled) {
    Json knobs = Json::object();
    for (const plan::Knob& knob : step.knobs) knobs[fmt::format("{}", knob.type)] = knob.value;
    json["steps"].push_back({{"heuristic", step.heuristic},
                             {"engine", step.engine},
                             {"knobs", knobs},
                             {"workspace_bytes", step.workspace_bytes}});
  }
  json["kernels"] = Json::array();
  for (const ExplainedKernels& each : explain_kernels(plan)) {
    json["kernels"].push_back(to_json(each));
  }
  return json;
}

}  // namespace attn::tools
