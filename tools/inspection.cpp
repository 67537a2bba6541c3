#include "tools/inspection.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/target/rewrites.h"
#include "runtime/cudnn/library.h"
#include "tools/table.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

// "a plan" if the file has only a forward, else "a forward plan" or "a backward plan".
std::string kind_text(const plan::Bundle& bundle, const plan::Plan& plan) {
  const plan::Direction direction = plan::direction_of(plan.program);
  if (bundle.plans.size() == 1 && direction == plan::Direction::forward) return "a plan";
  return fmt::format("a {} plan", to_string(direction));
}

// The sizes, and the dimensions for which smaller sizes are also served.
std::string shape_text(const plan::Plan& plan) {
  std::string padded;
  for (const plan::Dim dim : plan.shape.padded) {
    padded += fmt::format("{}{}", padded.empty() ? "" : ", ", to_string(dim));
  }
  return fmt::format("  sizes       {}{}\n", plan::to_text(plan.shape.sizes),
                     padded.empty() ? "" : "; also serves smaller " + padded);
}

// The name of --skeleton that leaves a form of kernels out; nothing for a rewrite, which --without
// names.
std::string_view skeleton_without(std::string_view name) {
  const auto forms = target::forms();
  const auto form = std::ranges::find(forms, name, &target::Form::name);
  return form == forms.end() ? std::string_view() : form->skeleton;
}

std::string decisions_text(const plan::Plan& plan) {
  std::string rewrites, skeletons;
  for (const std::string& name : plan.without) {
    const std::string_view skeleton = skeleton_without(name);
    if (skeleton.empty())
      rewrites += fmt::format("{}{}", rewrites.empty() ? "" : ",", shown(name));
    else
      skeletons += fmt::format("{}{}", skeletons.empty() ? "" : ",", skeleton);
  }
  return fmt::format("  strategy    {}{}{}\n", shown(plan.strategy),
                     rewrites.empty() ? "" : ", --without " + rewrites,
                     skeletons.empty() ? "" : ", --skeleton " + skeletons);
}

std::string nvrtc_text(const plan::Plan& plan) {
  return plan.nvrtc_version.empty() ? ""
                                    : fmt::format("  NVRTC       {}\n", shown(plan.nvrtc_version));
}

std::string header_text(const std::string& path, const std::string& kind, const plan::Plan& plan) {
  std::string bindings;
  for (const auto& [name, value] : plan.bindings)
    bindings += fmt::format(" {}={}", shown(name), shown(value));
  return fmt::format(
      "{}: {} of `{}`\n"
      "  bindings    {}\n"
      "{}"
      "  target      {} (sm_{})\n"
      "  runs on     {}\n"
      "  cuDNN       {}\n"
      "{}"
      "  workspace   {}\n"
      "  signature   {}\n"
      "{}",
      shown(path), kind, shown(plan.spec_name), bindings.empty() ? "none" : bindings.substr(1),
      shape_text(plan), shown(plan.target.name), plan.target.sm, runs_on_text(plan.target.sm),
      cudnn_text(plan.cudnn_version), nvrtc_text(plan), memory_text(plan::memory_of(plan)),
      plan.signature.hash.to_hex(), decisions_text(plan));
}

std::string kind_of(const plan::Step& step) {
  const auto* derive = std::get_if<plan::DeriveStep>(&step);
  const char* kind = std::holds_alternative<plan::CudnnStep>(step) ? "cudnn" : "kernels";
  if (derive != nullptr) kind = derive->once ? "derive once" : "derive";
  const std::int64_t turns = plan::turns_of(step);
  return turns == 1 ? kind : fmt::format("{}, {} turns", kind, turns);
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
    if (!std::holds_alternative<plan::CudnnStep>(plan.program.steps[i])) {
      table.add({number, kind_of(plan.program.steps[i]), "", "", "", "", "",
                 bytes_text(static_cast<std::int64_t>((image++)->size()))});
      continue;
    }
    const auto& step = std::get<plan::CudnnStep>(plan.program.steps[i]);
    table.add({number, kind_of(plan.program.steps[i]), fmt::format("{}", step.graph.nodes.size()),
               compiled->heuristic, fmt::format("{}", compiled->engine),
               knobs_text(compiled->knobs), bytes_text(compiled->workspace_bytes),
               bytes_text(static_cast<std::int64_t>(compiled->cudnn_plan.size()))});
    ++compiled;
  }
  if (plan.program.check) {
    table.add({"", "check at bind", "", "", "", "", "",
               bytes_text(static_cast<std::int64_t>(plan.kernels.back().size()))});
  }
  return table.to_text("  ");
}

}  // namespace

std::string inspect_text(const std::string& path, const plan::Bundle& bundle,
                         const plan::Plan& plan) {
  const std::string derived = derived_text(plan.program);
  return fmt::format("{}\ntensors\n{}{}{}\nsteps\n{}",
                     header_text(path, kind_text(bundle, plan), plan), tensors_text(plan.program),
                     derived.empty() ? "" : "\nderived tensors\n", derived, steps_text(plan));
}

}  // namespace attn::tools
