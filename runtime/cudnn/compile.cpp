#include "runtime/cudnn/compile.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "runtime/cudnn/attempts.h"
#include "runtime/cudnn/build_graph.h"
#include "runtime/cudnn/execution.h"
#include "runtime/cudnn/known_bad.h"
#include "runtime/plan/device_properties.h"

namespace attn::cudnn {
namespace {

struct Mode {
  cudnnBackendHeurMode_t mode;
  const char* name;
};
constexpr Mode kModes[] = {{CUDNN_HEUR_MODE_A, "A"}, {CUDNN_HEUR_MODE_FALLBACK, "FALLBACK"}};

Result<plan::CompiledStep> read_plan(const Descriptor& plan, const EngineChoice& choice) {
  plan::CompiledStep step;
  step.engine = choice.engine;
  step.knobs = choice.knobs;
  ATTN_ASSIGN(step.workspace_bytes, plan.get(kPlanWorkspaceSize));
  ATTN_ASSIGN(step.cudnn_plan, plan.get_text(kPlanJson));
  return step;
}

class Compiler {
 public:
  Compiler(const Api& api, const Circumstances& circumstances, const BuiltGraph& built,
           const Descriptor& device, Depth depth, const ProgressSink& progress)
      : api_(api),
        circumstances_(circumstances),
        built_(built),
        device_(device),
        depth_(depth),
        progress_(progress) {}

  Result<plan::CompiledStep> compile() {
    for (const EngineChoice& choice : choices_for(circumstances_)) {
      progress_({fmt::format("engine {}", choice.engine), -1});
      Result<plan::CompiledStep> step =
          try_offer(chosen(api_, built_.graph, device_, choice), "NONE");
      if (step.ok()) return step;
    }
    for (const Mode& mode : kModes) {
      progress_({fmt::format("heuristics {}", mode.name), -1});
      Result<plan::CompiledStep> step =
          try_offer(engine_configs(api_, built_.graph, device_, mode.mode), mode.name);
      if (step.ok()) return step;
    }
    if (passed_over_) {
      progress_({"every engine", -1});
      Result<plan::CompiledStep> step =
          try_offer(every_engine(api_, built_.graph, device_), "NONE");
      if (step.ok()) return step;
    }
    return attempts_.to_error();
  }

 private:
  // The first config that becomes a plan; else the last error.
  Result<plan::CompiledStep> try_offer(const Result<Offer>& offer, const char* mode) {
    attempts_.add_mode(mode, offer);
    if (!offer.ok()) return offer.error();
    Error last{ErrorCode::unsupported, "no engine config was offered"};
    for (const Descriptor& config : offer->configs) {
      Result<plan::CompiledStep> step = try_config(config, mode);
      if (step.ok()) return step;
      last = step.error();
    }
    return last;
  }

  Result<plan::CompiledStep> try_config(const Descriptor& config, const char* mode) {
    const Result<EngineChoice> choice = describe(config);
    if (!choice.ok()) {
      attempts_.add_config(mode, {}, choice.error());
      return choice.error();
    }
    if (const KnownBad* bad = find_known_bad(circumstances_, choice->engine)) {
      const Error error{ErrorCode::unsupported, std::string(bad->what)};
      attempts_.add_config(mode, *choice, error);
      passed_over_ = true;
      return error;
    }
    if (depth_ == Depth::offer) {
      plan::CompiledStep step;
      step.engine = choice->engine;
      step.knobs = choice->knobs;
      step.heuristic = mode;
      return step;
    }
    progress_({fmt::format("plan (engine {})", choice->engine), -1});
    Result<plan::CompiledStep> step = finalize_plan(config, *choice);
    if (step.ok()) {
      step->heuristic = mode;
    } else {
      attempts_.add_config(mode, *choice, step.error());
    }
    return step;
  }

  Result<plan::CompiledStep> finalize_plan(const Descriptor& config, const EngineChoice& choice) {
    ATTN_ASSIGN(const Descriptor plan, DescriptorBuilder(api_, kExecutionPlanDescriptor)
                                           .set(kPlanEngineConfig, config)
                                           .set(kPlanDeviceProp, device_)
                                           .finalize());
    return read_plan(plan, choice);
  }

  const Api& api_;
  const Circumstances& circumstances_;
  const BuiltGraph& built_;
  const Descriptor& device_;
  const Depth depth_;
  const ProgressSink& progress_;
  Attempts attempts_;
  bool passed_over_ = false;  // an offered config is known to be wrong
};

Error refusal(const KnownBad& bad, const graph::BackendGraph& graph) {
  const SourcePos pos = graph::position_of(graph.nodes.back());
  nlohmann::ordered_json payload = {{"stage", "known bad"}, {"row", bad.name}};
  if (pos.line != 0) payload.update({{"line", pos.line}, {"column", pos.column}});
  return {ErrorCode::unsupported,
          std::string(bad.what),
          {std::string(bad.help), fmt::format("source: {}", bad.source)},
          payload.dump()};
}

}  // namespace

Result<plan::CompiledStep> compile_graph(const Api& api, const graph::BackendGraph& graph,
                                         const std::string& device_json,
                                         const ProgressSink& progress, Depth depth) {
  progress({"device properties", -1});
  ATTN_ASSIGN(const Descriptor device, make_device(api, device_json));
  const Circumstances circumstances{static_cast<std::int64_t>(api.cudnnGetVersion()),
                                    plan::DeviceProperties(device_json).sm(), features_of(graph)};
  if (const KnownBad* bad = find_known_bad(circumstances)) return refusal(*bad, graph);
  ATTN_ASSIGN(const BuiltGraph built, build_graph(api, graph, progress));
  return Compiler(api, circumstances, built, device, depth, progress).compile();
}

Result<plan::CompiledStep> compile(const Library& library, const graph::BackendGraph& graph,
                                   const std::string& device_json, const ProgressSink& progress) {
  Result<plan::CompiledStep> step = compile_graph(library.api(), graph, device_json, progress);
  if (step.ok() || !library.nvrtc_path().empty()) return step;
  Error error = step.error();
  error.notes.push_back("NVRTC, which cuDNN needs to compile attention kernels, was not found");
  return error;
}

Result<plan::CompiledStep> offer(const Library& library, const graph::BackendGraph& graph,
                                 const std::string& device_json, const ProgressSink& progress) {
  return compile_graph(library.api(), graph, device_json, progress, Depth::offer);
}

Result<std::string> device_json_of_current_device(const Library& library) {
  // The session does not own the library: it ends in this function, before the library can be
  // released.
  ATTN_ASSIGN(const Session session,
              Session::create(std::shared_ptr<const Library>(&library, [](const Library*) {})));
  ATTN_ASSIGN(const Descriptor device,
              DescriptorBuilder(library.api(), kDevicePropDescriptor)
                  .set(kDevicePropHandle, static_cast<cudnnHandle_t>(session.handle()))
                  .finalize());
  return device.get_text(kDevicePropJson);
}

}  // namespace attn::cudnn
