// Whether ranks wait in vain: what the application knows of those that do not answer.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "runtime/base/status.h"

namespace attn::ranks {

// Why other ranks will not answer; nothing as far as is known.
using AskForLost = std::function<std::optional<std::string>()>;

// Serves one thread.
class Lost {
 public:
  explicit Lost(AskForLost ask) : ask_(std::move(ask)) {}

  using Time = std::chrono::steady_clock::time_point;

  // Asks about every second, from a second after a wait began. An error: it is in vain.
  Status check(Time since, Time now = std::chrono::steady_clock::now()) {
    if (!ask_) return {};
    if (now - since < kPause || now - last_ < kPause) return {};
    last_ = now;
    const std::optional<std::string> why = ask_();
    return why ? Status(ErrorCode::nccl, *why) : Status();
  }

 private:
  static constexpr std::chrono::seconds kPause{1};

  const AskForLost ask_;
  Time last_{};
};

}  // namespace attn::ranks
