#include <fmt/format.h>

#include "compiler/driver/driver.h"
#include "runtime/cuda/device.h"
#include "tools/command.h"
#include "tools/explanation.h"
#include "tools/report.h"
#include "tools/spec.h"
#include "tools/target_option.h"

namespace attn::tools {
namespace {

constexpr const char* kDefaultTarget = "h200";

struct Options {
  std::string path;
  std::string target;  // empty: the GPU at hand, or kDefaultTarget
  std::string cudnn_folder;
  std::string lowering{driver::kAnyLowering};
  sema::Bindings bindings;
  bool why_not = false;
  bool gradients = false;
  Format format = Format::text;
};

Result<plan::Target> target_of(const Options& options) {
  if (!options.target.empty()) return find_target(options.target, options.cudnn_folder);
  const Result<int> devices = cuda::device_count();
  if (devices.ok() && *devices > 0) return native_target(options.cudnn_folder);
  const std::string why = devices.ok() ? "there is no CUDA device" : devices.error().message;
  fmt::print(stderr, "target: {}, because {}\n", kDefaultTarget, why);
  return find_target(kDefaultTarget, options.cudnn_folder);
}

// Only the lack of cuDNN leaves the engine open, and with --why-not a refusal; any other failure is
// the answer.
Status compile(const Options& options, const Spec& spec, Explanation& explanation) {
  const Result<std::int64_t> version = worker::cudnn_version(worker_options(options.cudnn_folder));
  if (!version.ok()) {
    if (version.error().code != ErrorCode::cudnn) return version.error();
    explanation.why_not_compiled = version.error().message;
    return {};
  }
  driver::CompileOptions how;
  ATTN_ASSIGN(how.target, target_of(options));
  how.worker = worker_options(options.cudnn_folder);
  how.lowering = options.lowering;
  Result<driver::Compiled> compiled =
      driver::compile(spec.attention, *spec.source, spec.bindings, how);
  if (compiled.ok()) {
    set_program(explanation, spec, compiled->plan.program);
    explanation.compiled = std::move(*compiled);
  } else if (options.why_not && compiled.error().code == ErrorCode::unsupported) {
    explanation.refusal = compiled.error();
    explanation.refused_target = how.target.name;
  } else {
    return compiled.error();
  }
  return {};
}

int print(const Options& options, const Explanation& explanation) {
  if (options.format == Format::json) {
    print_json(to_json(explanation));
  } else {
    fmt::print("{}", to_text(explanation));
  }
  return explanation.refusal ? kUnsupported : kOk;
}

int explain_spec(const Options& options) {
  SpecOutcome outcome = read_spec(options.path, options.bindings, options.format);
  if (!outcome.spec) return outcome.exit_code;
  const Spec& spec = *outcome.spec;
  const auto program = driver::lower(spec.attention, options.lowering);
  if (!program.ok()) return report(program.error(), options.format, spec.source.get());
  Explanation explanation = explain(spec, *program, options.gradients);
  if (const Status status = compile(options, spec, explanation); !status.ok()) {
    return report(status.error(), options.format, spec.source.get());
  }
  return print(options, explanation);
}

int explain_plan(const Options& options) {
  const Result<plan::Plan> plan = plan::load(options.path);
  if (!plan.ok()) return report(plan.error(), options.format);
  SpecOutcome outcome = spec_of_plan(options.path, *plan, options.format);
  if (!outcome.spec) return outcome.exit_code;
  Explanation explanation = explain(*outcome.spec, plan->program, options.gradients);
  explanation.compiled = driver::Compiled{*plan, {}, {}};
  return print(options, explanation);
}

int run(const Options& options) {
  if (!is_plan(options.path)) return explain_spec(options);
  if (!options.bindings.empty() || !options.target.empty()) {
    return report({ErrorCode::invalid_argument,
                   "--bind and --target have no meaning for a plan: it has its sizes and target",
                   {},
                   {}},
                  options.format);
  }
  return explain_plan(options);
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "explain", "Show what becomes of each clause: graph nodes, mask, engine, work");
  command
      ->add_option("subject", options->path,
                   "Spec (.attn, .attn.json, - for standard input) or plan file")
      ->type_name("SPEC|PLAN")
      ->required();
  add_target_option(*command, options->target);
  add_bind(*command, options->bindings);
  command->add_flag("--grad", options->gradients,
                    "Derivatives too, also where the spec has no `grad` clause");
  command->add_flag("--why-not", options->why_not,
                    "When cuDNN refuses, explain all the same, with each engine's reason");
  add_lowering(*command, options->lowering);
  add_cudnn(*command, options->cudnn_folder);
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
