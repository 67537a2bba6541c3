// What the stress tests share.
#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <random>

#include "tests/unit/runtime/execute/on_standins.h"

namespace attn::stress {

using execute::must;

inline constexpr int kThreads = 8;

// `rounds`, as many times as $ATTN_STRESS says.
int times(int rounds);

// body(0), body(1), .. each in a thread of its own; returns when all have. A test that failed says
// so afterwards.
void in_threads(int count, const std::function<void(int thread)>& body);

// Waits until that many calls of cuDNN's wait for release().
void wait_until_blocked(std::int64_t calls);

// Of this process, in bytes.
std::int64_t resident_bytes();

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;  // memory is kept for the sanitizer's own use
#else
inline constexpr bool kSanitized = false;
#endif

// Numbers that are the same in every run.
class Random {
 public:
  explicit Random(int seed) : engine_(static_cast<std::uint32_t>(seed)) {}
  int below(int limit) { return static_cast<int>(engine_() % static_cast<std::uint32_t>(limit)); }

 private:
  std::mt19937 engine_;
};

}  // namespace attn::stress
