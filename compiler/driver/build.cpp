#include "compiler/driver/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "compiler/driver/support.h"

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

// Errors: unsupported if the kernel goes beyond the limits.
Status check_limits(const worker::CompiledKernel& kernel, Limits& limits) {
  if (!limits.of_kernels) return {};
  const nvrtc::Assembly assembly = nvrtc::read_assembly(kernel.log);
  limits.spilled_bytes = nvrtc::most_spilled(assembly, *limits.of_kernels);
  return nvrtc::check_assembly(assembly, *limits.of_kernels);
}

// Element-wise kernels have no limits, and are small: those that follow each other are compiled in
// one worker. General ones have one each, and are checked before more is compiled.
Status compile_kernels(plan::Plan& plan, const CompileOptions& options, Limits& limits) {
  const std::vector<plan::KernelSource> sources = plan::sources_of(plan.program);
  for (std::size_t i = 0; i < sources.size();) {
    const bool general = sources[i].general;
    std::vector<worker::KernelSource> together;
    do {
      together.push_back({*sources[i].text, options.target.sm, general});
      ++i;
    } while (!general && i < sources.size() && !sources[i].general);
    ATTN_RETURN_IF_ERROR(limits.deadline->check());
    ATTN_ASSIGN(std::vector<worker::CompiledKernel> kernels,
                worker::compile_kernels(together, in_time(options.worker, *limits.deadline)));
    if (general) ATTN_RETURN_IF_ERROR(check_limits(kernels.front(), limits));
    for (worker::CompiledKernel& kernel : kernels) plan.kernels.push_back(std::move(kernel.image));
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

namespace {

using Json = nlohmann::json;

struct Reason {
  std::string_view part;
  std::string_view words;
};
constexpr Reason kReasons[] = {
#define ATTN_REASON(part, words) {part, words},
#include "compiler/driver/reasons.def"
#undef ATTN_REASON
};

std::string translated(const std::string& said) {
  for (const Reason& reason : kReasons) {
    if (said.find(reason.part) != std::string::npos) return std::string(reason.words);
  }
  // A sentence, and the condition that does not hold, in names of cuDNN's source.
  return said.substr(0, said.find(" at: "));
}

// cuDNN's reason against the first config that it offered, else against the first config.
std::string first_reason(const Json& configs) {
  const Json* first = nullptr;
  for (const Json& config : configs) {
    if (first == nullptr) first = &config;
    if (config.value("offered", true)) return config.value("reason", "");
  }
  return first ? first->value("reason", "") : "";
}

// Empty if the error has no answers of cuDNN's.
std::string reason_of_configs(const Error& error) {
  const Json payload = Json::parse(error.payload, nullptr, false);
  if (!payload.is_object() || !payload.contains("configs")) return "";
  const std::string said = first_reason(payload["configs"]);
  return said.empty() ? "" : translated(said);
}

}  // namespace

Error with_reason(Error error) {
  std::string reason = reason_of_configs(error);
  if (reason.empty()) return error;
  if (error.code == ErrorCode::unsupported) {
    error.message = std::move(reason);
  } else {
    error.notes.insert(error.notes.begin(), std::move(reason));
  }
  return error;
}

std::string reason_of(const Error& error) {
  if (std::string reason = reason_of_configs(error); !reason.empty()) return reason;
  if (error.notes.empty()) return error.message;
  return fmt::format("{}; {}", error.message, error.notes.front());
}

}  // namespace attn::driver
