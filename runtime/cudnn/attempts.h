// Records the engine configs tried for one graph and cuDNN's errors, for compile()'s error.
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

class Attempts {
 public:
  // The result of one heuristic mode.
  void add_mode(const std::string& mode, const Result<Offer>& offer);
  // An offered config that did not become a plan.
  void add_config(const std::string& mode, const EngineChoice& choice, const Error& error);

  // "cuDNN offers no engine config for this graph" or "cuDNN could not build a plan for this graph:
  // 3 engine configs failed", with one note for each distinct reason that names its engines, and
  // the payload described in compile.h.
  Error to_error() const;

 private:
  struct ModeRecord {
    std::string mode;
    std::size_t configs;
    std::string status;
    std::string reason;
  };
  struct ConfigRecord {
    std::string mode;
    bool offered;
    LastWords words;
  };

  std::size_t offered_count() const;
  std::string payload() const;
  std::vector<std::string> notes() const;

  std::vector<ModeRecord> modes_;
  std::vector<ConfigRecord> configs_;
  bool only_refusals_ = true;
};

}  // namespace attn::cudnn
