#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "compiler/driver/driver.h"
#include "runtime/cudnn/library.h"
#include "tools/command.h"
#include "tools/report.h"
#include "tools/spec.h"
#include "tools/target_option.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

struct Options {
  std::string spec;
  std::string plan;  // --recompile
  std::string output;
  std::string target = "native";
  std::string direction;  // empty: both when the spec has gradients, else fwd
  std::string cudnn_folder;
  std::string lowering{driver::kAnyLowering};
  sema::Bindings bindings;
  Format format = Format::text;
};

// What is there is replaced: it must be a file, and none that was or may be written by hand.
Status check_output(const Options& options) {
  const std::string& output = options.output;
  const std::vector<std::string> notes = {"name a plan file, as in -o NAME.attnplan"};
  const auto refuse = [&](const std::string& why) {
    return Error{ErrorCode::invalid_argument, fmt::format("-o {}: {}", output, why), notes, {}};
  };
  if (output == "-") return refuse("a plan is not written to standard output");
  if (output.ends_with(".attn") || output.ends_with(".json")) {
    return refuse("this is the name of a spec or of properties, not of a plan");
  }
  std::error_code none;  // what does not exist is fine
  const auto status = std::filesystem::status(output, none);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return refuse("this exists and is no regular file");
  }
  const std::string& input = options.plan.empty() ? options.spec : options.plan;
  if (std::filesystem::equivalent(output, input, none)) return refuse("this is the input");
  return {};
}

int usage_error(const Options& options, const std::string& message) {
  return report({ErrorCode::invalid_argument, message, {}, {}}, options.format);
}

Result<driver::CompileOptions> compile_options(const Options& options) {
  driver::CompileOptions result;
  ATTN_ASSIGN(result.target, find_target(options.target, options.cudnn_folder));
  result.worker = worker_options(options.cudnn_folder);
  result.lowering = options.lowering;
  return result;
}

Json plan_json(const driver::Compiled& compiled) {
  return {{"lowering", compiled.lowering},
          {"refused", refusals_json(compiled.refused)},
          {"manifest", Json::parse(plan::manifest_json(compiled.plan))}};
}

// A single plan stands beside its name, several in a list.
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

void print_plan(const driver::Compiled& compiled, const std::string& output) {
  const plan::Plan& plan = compiled.plan;
  const bool backward = plan::direction_of(plan.program) == plan::Direction::backward;
  for (const plan::CompiledStep& step : plan.compiled) {
    fmt::print("{}: {}`{}` for {} (sm_{}), cuDNN {}: engine {} of heuristic {}, workspace {}\n",
               output, backward ? "backward of " : "", plan.spec_name, plan.target.name,
               plan.target.sm, cudnn::version_text(plan.cudnn_version), step.engine, step.heuristic,
               bytes_text(step.workspace_bytes));
  }
  for (const std::string& line : refusal_lines(compiled)) {
    fmt::print("{}: {}{}\n", output, backward ? "backward: " : "", line);
  }
}

int finish(const Options& options, const std::vector<driver::Compiled>& plans,
           const std::string& output) {
  if (const Status saved = plan::save(driver::bundle_of(plans), output); !saved.ok()) {
    return report(saved.error(), options.format);
  }
  const plan::Plan& first = plans.front().plan;
  const std::string doubt = doubt_of(first.target, first.cudnn_version);
  if (!doubt.empty()) fmt::print(stderr, "{}: note: {}\n", output, doubt);
  if (options.format == Format::json) {
    print_json(file_json(plans, output));
    return kOk;
  }
  for (const driver::Compiled& compiled : plans) print_plan(compiled, output);
  return kOk;
}

Result<std::vector<driver::Compiled>> compile_plans(const Options& options, const Spec& spec,
                                                    driver::CompileOptions how) {
  const bool trains = options.direction.empty() && !spec.attention.gradients.empty();
  if (trains || options.direction == "both") {
    auto pair = driver::compile_pair(spec.attention, *spec.source, spec.bindings, how);
    if (pair.ok() || !trains || pair.error().code != ErrorCode::unsupported) return pair;
    Error error = pair.error();
    error.notes.emplace_back(
        "the spec has a `grad` clause; --direction fwd compiles the forward alone");
    return error;
  }
  if (options.direction == "bwd") how.direction = plan::Direction::backward;
  ATTN_ASSIGN(driver::Compiled compiled,
              driver::compile(spec.attention, *spec.source, spec.bindings, how));
  return std::vector<driver::Compiled>{std::move(compiled)};
}

int compile_one(const Options& options, const Spec& spec, const driver::CompileOptions& how,
                const std::string& output) {
  const auto plans = compile_plans(options, spec, how);
  if (!plans.ok()) return report(plans.error(), options.format, spec.source.get());
  return finish(options, *plans, output);
}

// "x-Sq1024.attnplan": the file of a plan among several, by the sizes it was compiled for.
std::string output_of(const Options& options, const sema::Bindings& variant) {
  const std::filesystem::path path(options.output);
  std::string name = path.stem().string();
  for (const auto& [dim, size] : variant) {
    if (!options.bindings.contains(dim)) name += fmt::format("-{}{}", dim, size);
  }
  return (path.parent_path() / (name + path.extension().string())).string();
}

int compile_spec(const Options& options) {
  SpecOutcome outcome = read_spec(options.spec, options.bindings, options.format);
  if (!outcome.spec) return outcome.exit_code;
  const auto source = outcome.spec->source;
  const Result<driver::CompileOptions> how = compile_options(options);
  if (!how.ok()) return report(how.error(), options.format);
  const auto variants = driver::variants(*source, options.bindings);
  if (variants.size() == 1) return compile_one(options, *outcome.spec, *how, options.output);
  int worst = kOk;
  for (const sema::Bindings& variant : variants) {
    SpecOutcome one = analyze_spec(source, variant, options.format);
    worst = std::max(worst, one.spec
                                ? compile_one(options, *one.spec, *how, output_of(options, variant))
                                : one.exit_code);
  }
  return worst;
}

int recompile(const Options& options) {
  const Result<plan::Bundle> old = plan::load_bundle(options.plan);
  if (!old.ok()) return report(old.error(), options.format);
  const Result<driver::CompileOptions> how = compile_options(options);
  if (!how.ok()) return report(how.error(), options.format);
  const auto compiled = driver::recompile(*old, *how);
  if (!compiled.ok()) {
    return report(compiled.error(), options.format,
                  source_of_plan(options.plan, old->plans.front()).get());
  }
  return finish(options, *compiled, options.output);
}

int run(const Options& options) {
  if (options.spec.empty() == options.plan.empty()) {
    return usage_error(options, "give either SPEC or --recompile PLAN");
  }
  if (!options.plan.empty() && !options.bindings.empty()) {
    return usage_error(options, "--bind has no meaning with --recompile: the plan has its sizes");
  }
  if (!options.plan.empty() && !options.direction.empty()) {
    return usage_error(options,
                       "--direction has no meaning with --recompile: the plan has its own");
  }
  if (const Status status = check_output(options); !status.ok()) {
    return report(status.error(), options.format);
  }
  return options.plan.empty() ? compile_spec(options) : recompile(options);
}

}  // namespace

void add_compile(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("compile", "Compile a spec into a plan file; needs cuDNN, but no GPU");
  command->add_option("spec", options->spec, "File (.attn, .attn.json), or - for standard input")
      ->type_name("SPEC");
  command
      ->add_option(
          "-o,--output", options->output,
          "Plan file to write (.attnplan); of a spec with sets of sizes NAME-Sq1024.attnplan")
      ->type_name("FILE")
      ->required();
  add_target_option(*command, options->target);
  add_bind(*command, options->bindings);
  command
      ->add_option("--direction", options->direction,
                   "What to compile into the file; without it both when the spec has a `grad` "
                   "clause, else fwd")
      ->type_name("fwd|bwd|both")
      ->check(CLI::IsMember({"fwd", "bwd", "both"}));
  command->add_option("--recompile", options->plan, "Compile this plan file's programs again")
      ->type_name("PLAN");
  add_lowering(*command, options->lowering);
  add_cudnn(*command, options->cudnn_folder);
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
