#include "tools/explaining.h"

#include <fmt/format.h>

#include "compiler/driver/driver.h"
#include "compiler/driver/memory.h"
#include "runtime/cuda/device.h"
#include "tools/console.h"

namespace attn::tools {
namespace {

Result<plan::Target> target_of(const ExplainOptions& options) {
  if (!options.target.empty()) return find_target(options.target, options.cudnn_folder);
  const Result<int> devices = cuda::device_count();
  if (devices.ok() && *devices > 0) return native_target(options.cudnn_folder);
  const std::string why = devices.ok() ? "there is no CUDA device" : devices.error().message;
  tell_note(fmt::format("target: {}, because {}", kDefaultTarget, why));
  return find_target(kDefaultTarget, options.cudnn_folder);
}

target::Context context_of(const ExplainOptions& options, const Spec& spec,
                           const plan::Target& target, plan::Direction direction) {
  return {.gpu = target::gpu_of(target),
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

// The options to compile by; nothing, and why in the explanation, when cuDNN is needed but missing.
Result<std::optional<driver::CompileOptions>> compile_options(const ExplainOptions& options,
                                                              const Spec& spec,
                                                              const plan::Target& target,
                                                              bool needs_cudnn,
                                                              Explanation& explanation) {
  if (needs_cudnn && explanation.why_not_compiled.empty()) {
    const Result<std::int64_t> version =
        worker::cudnn_version(worker_options(options.cudnn_folder, options.limits));
    if (!version.ok() && version.error().code != ErrorCode::cudnn) return version.error();
    if (!version.ok()) explanation.why_not_compiled = version.error().message;
  }
  if (!explanation.why_not_compiled.empty()) return std::optional<driver::CompileOptions>();
  driver::CompileOptions how;
  how.target = target;
  how.worker = worker_options(options.cudnn_folder, options.limits);
  how.lowering = options.lowering;
  how.rewrites = options.rewrites;
  how.analyses = spec.analyses.get();
  return std::optional(std::move(how));
}

std::shared_ptr<target::Deadline> deadline_of(const BuildLimits& limits) {
  return std::make_shared<target::Deadline>(std::chrono::seconds(limits.seconds));
}

// The program of a direction, of a training pair's engine if it has gradients.
Result<plan::Program> lowered(const ExplainOptions& options, const ir::Attention& attention,
                              bool gradients, const target::Context& context) {
  planner::OfPair pair{options.lowering};
  if (gradients) {
    ATTN_ASSIGN(pair, planner::lowering_of_pair(attention, options.lowering, context));
  }
  planner::Candidates candidates(attention, pair, context);
  ATTN_ASSIGN(const planner::Candidate* best, candidates.next());
  return best->lowered->program;
}

// Explains the backward, which nobody need have asked for: so a refusal, whoever refuses, is part
// of the explanation.
Result<ExplainedProgram> explain_backward(const ExplainOptions& options, const Spec& spec,
                                          const plan::Target& target, Explanation& explanation) {
  constexpr auto kBackward = plan::Direction::backward;
  const auto program =
      lowered(options, spec.attention, true, context_of(options, spec, target, kBackward));
  if (!program.ok() && program.error().code != ErrorCode::unsupported) return program.error();
  if (!program.ok()) return explain_refused(spec, kBackward, program.error());
  ATTN_ASSIGN(auto how, compile_options(options, spec, target, needs_cudnn(*program), explanation));
  if (how) {
    how->paired = true;
    how->direction = kBackward;
  }
  return compiled_program(spec, spec.attention, *program, how, true);
}

}  // namespace

Result<Explanation> explain_attention(const ExplainOptions& options, const Spec& spec) {
  const bool gradients = options.gradients.value_or(!spec.attention.gradients.empty());
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
  const target::Context context = context_of(options, spec, *target, kForward);
  const auto program = lowered(options, attention, gradients, context);
  const bool explains = options.why_not && !program.ok() && attention.dims.bound() &&
                        program.error().code == ErrorCode::unsupported;
  if (!program.ok() && !explains) return program.error();
  Explanation explanation = explain(spec, gradients, options.rewrites, deadline_of(options.limits));
  explanation.target = *target;
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

Explanation explain_plans(const Spec& spec, const plan::Bundle& bundle, bool gradients,
                          const BuildLimits& limits) {
  const bool both = gradients || !spec.attention.gradients.empty() ||
                    bundle.find(plan::Direction::backward) != nullptr;
  Explanation explanation =
      explain(spec, both, target::all_but(bundle.plans.front().without), deadline_of(limits));
  explanation.target = bundle.plans.front().target;
  for (const plan::Plan& plan : bundle.plans) {
    const bool backward = plan::direction_of(plan.program) == plan::Direction::backward;
    auto& explained = backward ? explanation.backward : explanation.forward;
    explained = explain_compiled(spec, driver::Compiled{plan, {}});
  }
  return explanation;
}

void warn_of_memory(const Spec& spec, const Explanation& explanation, diag::Sink& sink) {
  for (const auto* explained : {&explanation.forward, &explanation.backward}) {
    if (!*explained) continue;
    const ExplainedProgram& program = **explained;
    driver::warn_of_memory(spec.attention, program.program,
                           program.compiled ? plan::memory_of(program.compiled->plan)
                                            : plan::memory_of(program.program),
                           sink);
  }
}

}  // namespace attn::tools
