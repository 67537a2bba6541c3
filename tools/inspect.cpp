#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/cudnn/library.h"
#include "tools/command.h"
#include "tools/report.h"
#include "tools/table.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

struct Options {
  std::string plan;
  Format format = Format::text;
};

std::string header_text(const std::string& path, const plan::Plan& plan) {
  std::string bindings;
  for (const auto& [name, value] : plan.bindings) bindings += fmt::format(" {}={}", name, value);
  return fmt::format(
      "{}: a plan of `{}`\n"
      "  bindings    {}\n"
      "  target      {} (sm_{})\n"
      "  cuDNN       {}\n"
      "  workspace   {}\n"
      "  signature   {}\n",
      path, plan.spec_name, bindings.empty() ? "none" : bindings.substr(1), plan.target.name,
      plan.target.sm, cudnn::version_text(plan.cudnn_version), bytes_text(plan.workspace_bytes()),
      plan.signature.hash.to_hex());
}

std::string steps_text(const plan::Plan& plan) {
  Table table({{"step", Align::right},
               {"kind"},
               {"nodes", Align::right},
               {"heuristic"},
               {"engine", Align::right},
               {"knobs"},
               {"workspace", Align::right},
               {"kernel", Align::right}});
  auto compiled = plan.compiled.begin();
  auto image = plan.kernels.begin();
  for (std::size_t i = 0; i < plan.program.steps.size(); ++i) {
    const std::string number = fmt::format("{}", i);
    if (const auto* derive = std::get_if<plan::DeriveStep>(&plan.program.steps[i])) {
      table.add({number, derive->once ? "derive once" : "derive", "", "", "", "", "",
                 bytes_text(static_cast<std::int64_t>((image++)->size()))});
      continue;
    }
    const auto& step = std::get<plan::CudnnStep>(plan.program.steps[i]);
    table.add({number, "cudnn", fmt::format("{}", step.graph.nodes.size()), compiled->heuristic,
               fmt::format("{}", compiled->engine), knobs_text(compiled->knobs),
               bytes_text(compiled->workspace_bytes),
               bytes_text(static_cast<std::int64_t>(compiled->cudnn_plan.size()))});
    ++compiled;
  }
  if (plan.program.check) {
    table.add({"", "check at bind", "", "", "", "", "",
               bytes_text(static_cast<std::int64_t>(plan.kernels.back().size()))});
  }
  return table.to_text("  ");
}

int run(const Options& options) {
  const Result<plan::Plan> plan = plan::load(options.plan);
  if (!plan.ok()) return report(plan.error(), options.format);
  if (options.format == Format::json) {
    print_json(Json::parse(plan::manifest_json(*plan)));
    return kOk;
  }
  const std::string derived = derived_text(plan->program);
  fmt::print("{}\ntensors\n{}{}{}\nsteps\n{}", header_text(options.plan, *plan),
             tensors_text(plan->program), derived.empty() ? "" : "\nderived tensors\n", derived,
             steps_text(*plan));
  return kOk;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("inspect", "Tell what is in a plan file; needs neither CUDA nor cuDNN");
  command->add_option("plan", options->plan, "File that `attnc compile` wrote")
      ->type_name("PLAN")
      ->required();
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
