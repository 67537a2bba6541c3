// The engine configs that a heuristic mode offers for an operation graph.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/cudnn/descriptor.h"
#include "runtime/plan/plan.h"

namespace attn::cudnn {

struct EngineChoice {
  std::int64_t engine = -1;
  std::vector<plan::Knob> knobs;  // ascending type
};

// DEVICEPROP from JSON. Errors: invalid_argument, with cuDNN's reason (it names a missing key).
Result<Descriptor> make_device(const Api& api, const std::string& device_json);

// ENGINECFG descriptors, best first; may be empty.
Result<std::vector<Descriptor>> engine_configs(const Api& api, const Descriptor& graph,
                                               const Descriptor& device,
                                               cudnnBackendHeurMode_t mode);

// Which engine and knobs a config stands for.
Result<EngineChoice> describe(const Descriptor& config);

}  // namespace attn::cudnn
