// The engine configs that a heuristic mode offers for an operation graph.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/cudnn/descriptor.h"
#include "runtime/cudnn/last_words.h"

namespace attn::cudnn {

// What one heuristic mode says of a graph.
struct Offer {
  std::vector<Descriptor> configs;  // ENGINECFG, best first; may be empty
  std::vector<LastWords> refused;   // configs that it looked at and did not offer, with the reason
};

// DEVICEPROP from JSON. Errors: invalid_argument, with cuDNN's reason (it names a missing key).
Result<Descriptor> make_device(const Api& api, const std::string& device_json);

Result<Offer> engine_configs(const Api& api, const Descriptor& graph, const Descriptor& device,
                             cudnnBackendHeurMode_t mode);

// A config with default knobs of every engine that takes the graph, whatever heuristics think of
// it, by ascending index. For when the engines that heuristics offer are known to be wrong.
Result<Offer> every_engine(const Api& api, const Descriptor& graph, const Descriptor& device);

// Which engine and knobs a config stands for.
Result<EngineChoice> describe(const Descriptor& config);

}  // namespace attn::cudnn
