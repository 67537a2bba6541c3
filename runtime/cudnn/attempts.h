// What was tried for one graph and what cuDNN said: the material of compile()'s error.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/cudnn/engine_configs.h"

namespace attn::cudnn {

class Attempts {
 public:
  // The answer of one heuristic mode.
  void add_mode(const std::string& mode, const Result<Offer>& offer);
  // An offered config that did not become a plan.
  void add_config(const std::string& mode, const EngineChoice& choice, const Error& error);

  // "cuDNN offers no engine config for this graph" or "cuDNN made no plan of this graph: 3 engine
  // configs failed", one note for each distinct reason with the engines that gave it, and the
  // payload that compile.h documents.
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
