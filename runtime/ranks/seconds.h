// Times in messages.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string>

namespace attn::ranks {

inline std::string seconds(std::chrono::milliseconds time) {  // "30 s", "0.2 s"
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000);
}

}  // namespace attn::ranks
