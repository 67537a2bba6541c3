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

// How the direction is compiled, as half of a training pair if it has gradients.
driver::CompileOptions compile_options(const ExplainOptions& options, const Spec& spec,
                                       const plan::Target& target, plan::Direction direction,
                                       bool gradients) {
  driver::CompileOptions how;
  how.target = target;
  how.worker = worker_options(options.cudnn_folder, options.limits);
  how.lowering = options.lowering;
  how.direction = direction;
  how.rewrites = options.rewrites;
  how.analyses = spec.analyses.get();
  how.paired = gradients;
  return how;
}

// Whether the program can be compiled; if cuDNN is needed but missing, the explanation says why
// not.
Result<bool> can_compile(const plan::Program& program, const driver::CompileOptions& how,
                         Explanation& explanation) {
  const bool needs_cudnn = !plan::steps_of<plan::CudnnStep>(program).empty();
  if (needs_cudnn && explanation.why_not_compiled.empty()) {
    const Result<std::int64_t> version = worker::cudnn_version(how.worker);
    if (!version.ok() && version.error().code != ErrorCode::cudnn) return version.error();
    if (!version.ok()) explanation.why_not_compiled = version.error().message;
  }
  return explanation.why_not_compiled.empty();
}

// What the search found, compiled if that can be. A refusal is the answer when `may_refuse`.
Result<ExplainedProgram> explain_found(planner::Search& search,
                                       const Result<planner::Candidate*>& best, const Spec& spec,
                                       const driver::CompileOptions& how, bool may_refuse,
                                       Explanation& explanation) {
  const auto is_answer = [may_refuse](const Error& error) {
    return may_refuse && error.code == ErrorCode::unsupported;
  };
  if (!best.ok() && !is_answer(best.error())) return best.error();
  if (!best.ok()) return explain_refused(spec, how.direction, best.error());
  ExplainedProgram explained = explain_program(spec, (*best)->lowered->program);
  ATTN_ASSIGN(const bool compiles, can_compile(explained.program, how, explanation));
  if (!compiles) return explained;
  Result<driver::Compiled> compiled = driver::compile(search, *spec.source, spec.bindings, how);
  if (compiled.ok()) return explain_compiled(spec, std::move(*compiled));
  if (!is_answer(compiled.error())) return compiled.error();
  explained.refusal = compiled.error();
  explained.refused_target = how.target.name;
  return explained;
}

std::shared_ptr<target::Deadline> deadline_of(const BuildLimits& limits) {
  return std::make_shared<target::Deadline>(std::chrono::seconds(limits.seconds));
}

// Explains the backward. A refusal, whoever refuses, is part of the explanation, beside the
// forward.
Result<ExplainedProgram> explain_backward(const ExplainOptions& options, const Spec& spec,
                                          const plan::Target& target, Explanation& explanation) {
  const auto how = compile_options(options, spec, target, plan::Direction::backward, true);
  ATTN_ASSIGN(const auto search, driver::search_of(spec.attention, how));
  return explain_found(*search, search->next(), spec, how, true, explanation);
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
  const auto how = compile_options(options, spec, *target, plan::Direction::forward, gradients);
  ATTN_ASSIGN(const auto search, driver::search_of(attention, how));
  const Result<planner::Candidate*> best = search->next();
  const bool may_refuse = options.why_not && attention.dims.bound();
  if (!best.ok() && !(may_refuse && best.error().code == ErrorCode::unsupported)) {
    return best.error();
  }
  Explanation explanation = explain(spec, gradients, options.rewrites, deadline_of(options.limits));
  explanation.target = *target;
  explanation.why_not_compiled = why_no_target;
  ATTN_ASSIGN(explanation.forward,
              explain_found(*search, best, spec, how, options.why_not, explanation));
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
