#include <fmt/format.h>

#include "compiler/driver/driver.h"
#include "compiler/driver/memory.h"
#include "runtime/cuda/device.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/explanation.h"
#include "tools/plans.h"
#include "tools/report.h"
#include "tools/spec.h"
#include "tools/target_option.h"

namespace attn::tools {
namespace explain_command {
namespace {

constexpr const char* kDefaultTarget = "h200";

struct Options {
  std::string path;
  std::string target;  // empty: the local GPU, or kDefaultTarget
  std::string cudnn_folder;
  std::string lowering{planner::kAnyLowering};
  planning::Rewrites rewrites;
  int timeout = kBuildSeconds;
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
  tell_note(fmt::format("target: {}, because {}", kDefaultTarget, why));
  return find_target(kDefaultTarget, options.cudnn_folder);
}

planning::Context context_of(const Options& options, const Spec& spec, const plan::Target& target,
                             plan::Direction direction) {
  return {.gpu = planning::gpu_of(target),
          .direction = direction,
          .rewrites = options.rewrites,
          .analyses = spec.analyses.get()};
}

// The program, compiled when `how` is given. A refusal by cuDNN is the answer when `may_refuse`.
Result<ExplainedProgram> compiled_program(const Spec& spec, const ir::Attention& attention,
                                          const plan::Program& program,
                                          const std::optional<driver::CompileOptions>& how,
                                          bool may_refuse) {
  if (!how) return explain_program(spec, program);
  Result<driver::Compiled> compiled = driver::compile(attention, *spec.source, spec.bindings, *how);
  if (compiled.ok()) {
    return explain_compiled(spec, std::move(*compiled));
  }
  if (!may_refuse || compiled.error().code != ErrorCode::unsupported) return compiled.error();
  ExplainedProgram explained = explain_program(spec, program);
  explained.refusal = compiled.error();
  explained.refused_target = how->target.name;
  return explained;
}

bool needs_cudnn(const plan::Program& program) {
  return !plan::steps_of<plan::CudnnStep>(program).empty();
}

// Nothing, and why in the explanation, when there is no cuDNN but it is needed.
Result<std::optional<driver::CompileOptions>> compile_options(const Options& options,
                                                              const Spec& spec,
                                                              const plan::Target& target,
                                                              bool needs_cudnn,
                                                              Explanation& explanation) {
  if (needs_cudnn && explanation.why_not_compiled.empty()) {
    const Result<std::int64_t> version =
        worker::cudnn_version(worker_options(options.cudnn_folder, options.timeout));
    if (!version.ok() && version.error().code != ErrorCode::cudnn) return version.error();
    if (!version.ok()) explanation.why_not_compiled = version.error().message;
  }
  if (!explanation.why_not_compiled.empty()) return std::optional<driver::CompileOptions>();
  driver::CompileOptions how;
  how.target = target;
  how.worker = worker_options(options.cudnn_folder, options.timeout);
  how.lowering = options.lowering;
  how.rewrites = options.rewrites;
  how.analyses = spec.analyses.get();
  return std::optional(std::move(how));
}

// Of what nobody need have asked for: a refusal, whoever refuses, is part of the explanation.
Result<ExplainedProgram> explain_backward(const Options& options, const Spec& spec,
                                          const plan::Target& target, Explanation& explanation) {
  constexpr auto kBackward = plan::Direction::backward;
  const auto program =
      driver::lower(spec.attention, options.lowering, context_of(options, spec, target, kBackward));
  if (!program.ok() && program.error().code != ErrorCode::unsupported) return program.error();
  if (!program.ok()) return explain_refused(spec, kBackward, program.error());
  ATTN_ASSIGN(auto how, compile_options(options, spec, target, needs_cudnn(*program), explanation));
  if (how) {
    how->paired = true;
    how->direction = kBackward;
  }
  return compiled_program(spec, spec.attention, *program, how, true);
}

int print(const Options& options, const Explanation& explanation) {
  if (options.format == Format::json) {
    print_json(to_json(explanation));
  } else {
    fmt::print("{}", to_text(explanation));
  }
  return explanation.forward && explanation.forward->refusal ? kUnsupported : kOk;
}

// With gradients what `attnc compile --direction both` makes.
Result<Explanation> explain_attention(const Options& options, const Spec& spec) {
  const bool gradients = options.gradients || !spec.attention.gradients.empty();
  const ir::Attention attention =
      gradients ? driver::training_forward(spec.attention) : spec.attention;
  Result<plan::Target> target = target_of(options);
  std::string why_no_target;
  if (!target.ok()) {
    if (target.error().code != ErrorCode::cudnn) return target.error();
    why_no_target = target.error().message;
    target = find_target(kDefaultTarget, options.cudnn_folder);
  }
  constexpr auto kForward = plan::Direction::forward;
  const planning::Context context = context_of(options, spec, *target, kForward);
  Result<std::string> lowering = options.lowering;
  if (gradients) lowering = planner::lowering_of_pair(attention, options.lowering, context);
  ATTN_RETURN_IF_ERROR(lowering.status());
  const auto program = driver::lower(attention, *lowering, context);
  const bool explains = options.why_not && !program.ok() && attention.dims.bound() &&
                        program.error().code == ErrorCode::unsupported;
  if (!program.ok() && !explains) return program.error();
  Explanation explanation = explain(spec, gradients, options.rewrites);
  explanation.why_not_compiled = why_no_target;
  if (explains) {
    explanation.forward = explain_refused(spec, kForward, program.error());
  } else {
    ATTN_ASSIGN(auto how,
                compile_options(options, spec, *target, needs_cudnn(*program), explanation));
    if (how) how->paired = gradients;
    ATTN_ASSIGN(explanation.forward,
                compiled_program(spec, attention, *program, how, options.why_not));
  }
  if (!gradients) return explanation;
  ATTN_ASSIGN(explanation.backward, explain_backward(options, spec, *target, explanation));
  return explanation;
}

// Of what is known: without cuDNN its own part is not. An error where warnings are denied.
std::optional<Error> warn_of_memory(const Options& options, const Spec& spec,
                                    const Explanation& explanation) {
  diag::Sink sink(*spec.source);
  for (const auto* explained : {&explanation.forward, &explanation.backward}) {
    if (!*explained) continue;
    const ExplainedProgram& program = **explained;
    driver::warn_of_memory(spec.attention, program.program,
                           program.compiled ? plan::memory_of(program.compiled->plan)
                                            : plan::memory_of(program.program),
                           sink);
  }
  print_diagnostics(diag::to_text(sink, error_paint()));
  return report_denied(sink, options.format);
}

int explain_spec(const Options& options) {
  SpecOutcome outcome = read_spec(options.path, options.bindings, options.format);
  if (!outcome.spec) return outcome.exit_code;
  const auto explanation = explain_attention(options, *outcome.spec);
  if (explanation.ok()) {
    if (warn_of_memory(options, *outcome.spec, *explanation)) return kSpecHasErrors;
    return print(options, *explanation);
  }
  return report(explanation.error(), options.format, outcome.spec->source.get());
}

int explain_plan(const Options& options) {
  const Result<plan::Bundle> bundle = read_shape(options.path, options.bindings);
  if (!bundle.ok()) return report(bundle.error(), options.format);
  SpecOutcome outcome = spec_of_plan(options.path, bundle->plans.front(), options.format);
  if (!outcome.spec) return outcome.exit_code;
  const Spec& spec = *outcome.spec;
  const bool gradients = options.gradients || !spec.attention.gradients.empty() ||
                         bundle->find(plan::Direction::backward) != nullptr;
  Explanation explanation =
      explain(spec, gradients, planning::all_but(bundle->plans.front().without));
  for (const plan::Plan& plan : bundle->plans) {
    const bool backward = plan::direction_of(plan.program) == plan::Direction::backward;
    auto& explained = backward ? explanation.backward : explanation.forward;
    explained = explain_compiled(spec, driver::Compiled{plan, {}});
  }
  return print(options, explanation);
}

int run(const Options& options) {
  if (!is_plan(options.path)) return explain_spec(options);
  if (!options.target.empty()) {
    return report(
        {ErrorCode::invalid_argument, "--target has no meaning for a plan: it has its own", {}, {}},
        options.format);
  }
  return explain_plan(options);
}

}  // namespace
}  // namespace explain_command

void add_explain(CLI::App& app, Action& action) {
  using namespace explain_command;
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
                    "Derivatives and the backward too, also where the spec has no `grad` clause");
  command->add_flag("--why-not", options->why_not,
                    "When cuDNN refuses, explain all the same, with each engine's reason");
  add_lowering(*command, options->lowering, options->rewrites);
  add_deny(*command);
  add_timeout(*command, options->timeout);
  add_cudnn(*command, options->cudnn_folder);
  add_format(*command, options->format);
  set_action(*command, action, options, run);
}

}  // namespace attn::tools
