// What was tried for one graph and what cuDNN said: the material of compile()'s error.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/cudnn/descriptor.h"
#include "runtime/cudnn/engine_configs.h"

namespace attn::cudnn {

class Attempts {
 public:
  // The answer of one heuristic mode.
  void add_mode(const std::string& mode, const Result<std::vector<Descriptor>>& configs);
  // A config that did not become a plan.
  void add_config(const std::string& mode, const EngineChoice& choice, const Error& error);

  // "cuDNN offers no engine config for this graph" or "cuDNN refused all 3 engine configs of this
  // graph", one note for each distinct reason, and the payload that compile.h documents.
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
    EngineChoice choice;
    std::string status;
    std::string reason;
  };

  std::string payload() const;
  std::vector<std::string> notes() const;
  void saw(const Error& error);

  std::vector<ModeRecord> modes_;
  std::vector<ConfigRecord> configs_;
  bool only_refusals_ = true;
};

}  // namespace attn::cudnn
