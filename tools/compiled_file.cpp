#include "tools/compiled_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "runtime/cudnn/library.h"
#include "tools/console.h"
#include "tools/manifest.h"
#include "tools/report.h"
#include "tools/target_option.h"
#include "tools/timed.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

Json plan_json(const driver::Compiled& compiled) {
  return {{"strategy", compiled.plan.strategy},
          {"refused", refusals_json(compiled.refused)},
          {"manifest", manifest_of(compiled.plan)}};
}

// The JSON of a single plan is flat; several plans are a list.
Json file_json(const std::vector<driver::Compiled>& plans, const std::string& output) {
  Json json = {{"plan", output}};
  if (plans.size() == 1) {
    json.update(plan_json(plans.front()));
    return json;
  }
  for (const driver::Compiled& compiled : plans) {
    Json plan = {{"direction", to_string(plan::direction_of(compiled.plan.program))}};
    plan.update(plan_json(compiled));
    json["plans"].push_back(std::move(plan));
  }
  return json;
}

// `dims`: the dimensions in which the file's plans differ.
void print_plan(const driver::Compiled& compiled, const std::string& output,
                std::span<const plan::Dim> dims) {
  const plan::Plan& plan = compiled.plan;
  const bool backward = plan::direction_of(plan.program) == plan::Direction::backward;
  const std::string sizes = dims.empty() ? "" : " " + plan::to_text(plan.shape.sizes, dims);
  for (const plan::CompiledStep& step : plan.compiled) {
    fmt::print("{}: {}`{}`{} for {} (sm_{}), cuDNN {}: engine {} of heuristic {}, workspace {}\n",
               output, backward ? "backward of " : "", plan.spec_name, sizes, plan.target.name,
               plan.target.sm, cudnn::version_text(plan.cudnn_version), step.engine, step.heuristic,
               bytes_text(step.workspace_bytes));
  }
  if (plan.compiled.empty()) {
    fmt::print("{}: {}`{}`{} for {} (sm_{}): attnc kernels\n", output,
               backward ? "backward of " : "", plan.spec_name, sizes, plan.target.name,
               plan.target.sm);
  }
  fmt::print("{}: {}total workspace {}\n", output, backward ? "backward: " : "",
             memory_text(plan::memory_of(plan)));
  for (const std::string& line : choice_lines(plan)) {
    fmt::print("{}: {}{}\n", output, backward ? "backward: " : "", line);
  }
  for (const std::string& line : refusal_lines(compiled)) {
    fmt::print("{}: {}{}\n", output, backward ? "backward: " : "", line);
  }
}

std::vector<plan::Dim> varying_dims(const std::vector<driver::Compiled>& plans) {
  std::vector<plan::Sizes> sizes;
  for (const driver::Compiled& compiled : plans) sizes.push_back(compiled.plan.shape.sizes);
  return plan::varying(sizes);
}

std::vector<plan::Target> targets_in(const std::vector<driver::Compiled>& plans) {
  std::vector<plan::Target> targets;
  for (const driver::Compiled& compiled : plans) {
    const plan::Target& target = compiled.plan.target;
    if (std::ranges::find(targets, target) == targets.end()) targets.push_back(target);
  }
  return targets;
}

// Says the doubt of a target once.
void tell_doubts(const std::vector<driver::Compiled>& plans, const std::string& output) {
  std::set<std::string> told;
  for (const driver::Compiled& compiled : plans) {
    const std::string doubt = doubt_of(compiled.plan.target, compiled.plan.cudnn_version);
    if (told.insert(doubt).second) tell_doubt(compiled.plan, output);
  }
}

void print_all(const std::vector<driver::Compiled>& plans, const std::string& output) {
  Progress::clear();
  const std::vector<plan::Dim> dims = varying_dims(plans);
  for (const driver::Compiled& compiled : plans) print_plan(compiled, output, dims);
  for (const plan::Target& target : targets_in(plans)) {
    fmt::print("{}: runs on {}\n", output, runs_on_text(target.sm));
  }
}

}  // namespace

Json failures_json(const std::vector<Failure>& failures) {
  Json list = Json::array();
  for (const Failure& failure : failures) {
    list.push_back({{"bindings", failure.bindings}, {"error", error_json(failure.error, nullptr)}});
  }
  return list;
}

int worst_of(const std::vector<Failure>& failures) {
  int worst = kOk;
  for (const Failure& failure : failures) worst = std::max(worst, exit_code(failure.error.code));
  return worst;
}

void tell_doubt(const plan::Plan& plan, const std::string& output) {
  const std::string doubt = doubt_of(plan.target, plan.cudnn_version);
  if (!doubt.empty()) tell_note(fmt::format("{}: note: {}", output, doubt));
}

int write_compiled(const std::vector<driver::Compiled>& plans, const std::vector<Failure>& failures,
                   const std::string& output, Format format) {
  if (const Status saved = plan::save(driver::bundle_of(plans), output); !saved.ok()) {
    return report(saved.error(), format);
  }
  tell_detail(fmt::format("wrote {}", output));
  tell_doubts(plans, output);
  if (format == Format::json) {
    Json json = file_json(plans, output);
    if (!failures.empty()) json["failed"] = failures_json(failures);
    print_json(json);
  } else if (!is_quiet()) {
    print_all(plans, output);
  }
  return worst_of(failures);
}

}  // namespace attn::tools
