#include "compiler/driver/build.h"

#include <algorithm>

#include "compiler/driver/reasons.h"

namespace attn::driver {
namespace {

// Workers that end with the build.
worker::Options in_time(worker::Options worker, const target::Deadline& deadline) {
  using std::chrono::seconds;
  const auto left = std::chrono::ceil<seconds>(deadline.left());
  worker.timeout = std::min(worker.timeout, std::max(left, seconds(1)));
  return worker;
}

// All cuDNN steps, in one worker.
Status compile_graphs(plan::Plan& plan, const CompileOptions& options, const Limits& limits) {
  const Graphs graphs = graphs_of(plan.program);
  if (graphs.all.empty()) return {};
  const Result<std::vector<worker::Compiled>> compiled = worker::compile(
      graphs.all, options.target.device_json, in_time(options.worker, *limits.deadline));
  if (!compiled.ok()) return with_reason(compiled.error());
  for (const std::size_t graph : graphs.of_steps) plan.compiled.push_back((*compiled)[graph].step);
  plan.cudnn_version = compiled->front().cudnn_version;
  return {};
}

// Element-wise kernels have no limits.
Status compile_kernels(plan::Plan& plan, const CompileOptions& options, Limits& limits) {
  for (const auto& [source, general] : plan::sources_of(plan.program)) {
    ATTN_RETURN_IF_ERROR(limits.deadline->check());
    ATTN_ASSIGN(worker::CompiledKernel kernel,
                worker::compile_kernel({*source, options.target.sm, general},
                                       in_time(options.worker, *limits.deadline)));
    if (general && limits.of_kernels) {
      const nvrtc::Assembly assembly = nvrtc::read_assembly(kernel.log);
      limits.spilled_bytes = nvrtc::most_spilled(assembly, *limits.of_kernels);
      ATTN_RETURN_IF_ERROR(nvrtc::check_assembly(assembly, *limits.of_kernels));
    }
    plan.kernels.push_back(std::move(kernel.image));
  }
  return {};
}

}  // namespace

Graphs graphs_of(const plan::Program& program) {
  Graphs graphs;
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(program)) {
    const auto found = std::ranges::find(graphs.all, step->graph);
    graphs.of_steps.push_back(static_cast<std::size_t>(found - graphs.all.begin()));
    if (found == graphs.all.end()) graphs.all.push_back(step->graph);
  }
  return graphs;
}

Status compile_steps(plan::Plan& plan, const CompileOptions& options, Limits& limits) {
  plan.target = options.target;
  plan.compiled.clear();
  plan.kernels.clear();
  plan.cudnn_version = 0;
  ATTN_RETURN_IF_ERROR(compile_graphs(plan, options, limits));
  ATTN_RETURN_IF_ERROR(compile_kernels(plan, options, limits));  // seldom refused: last
  plan.signature = plan::signature_of(plan);
  return {};
}

}  // namespace attn::driver
