// Records the engine configs tried for one graph and cuDNN's errors, for compile()'s error.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/cudnn/engine_configs.h"

namespace attn::cudnn {

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
