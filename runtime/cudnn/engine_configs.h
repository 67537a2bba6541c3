// The engine configs that a heuristic mode offers for an operation graph.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/cudnn/descriptor.h"
#include "runtime/cudnn/last_words.h"

namespace attn::cudnn {

// The result of one heuristic mode for a graph.
struct Offer {
  std::vector<Descriptor> configs;  // ENGINECFG, best first; may be empty
  std::vector<LastWords> refused;   // configs considered but not offered, with reasons
};

// DEVICEPROP from JSON. Errors: invalid_argument with cuDNN's reason, which names a missing key.
Result<Descriptor> make_device(const Api& api, const std::string& device_json);

Result<Offer> engine_configs(const Api& api, const Descriptor& graph, const Descriptor& device,
                             cudnnBackendHeurMode_t mode);

// A config with default knobs for every engine that accepts the graph, by ascending index, whatever
// the heuristics offer. Used if the engines that they offer are known to be wrong.
Result<Offer> every_engine(const Api& api, const Descriptor& graph, const Descriptor& device);

// The config of this engine with these knobs, whatever the heuristics offer.
Result<Offer> chosen(const Api& api, const Descriptor& graph, const Descriptor& device,
                     const EngineChoice& choice);

// The engine and knobs of a config.
Result<EngineChoice> describe(const Descriptor& config);

}  // namespace attn::cudnn
