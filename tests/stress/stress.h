// Helpers of the stress tests.
#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <random>

#include "tests/unit/runtime/execute/on_standins.h"

namespace attn::stress {

using execute::must;

inline constexpr int kThreads = 8;

// `rounds` times $ATTN_STRESS (default 1).
int times(int rounds);

// Runs body(0), body(1), .. in one thread each, and waits for all. Exceptions are test failures.
void in_threads(int count, const std::function<void(int thread)>& body);

// Waits until `calls` calls of cuDNN are blocked until release().
void wait_until_blocked(std::int64_t calls);

// Resident memory of this process, in bytes.
std::int64_t resident_bytes();

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;  // the sanitizer holds back memory
#else
inline constexpr bool kSanitized = false;
#endif

// Deterministic random numbers.
class Random {
 public:
  explicit Random(int seed) : engine_(static_cast<std::uint32_t>(seed)) {}
  int below(int limit) { return static_cast<int>(engine_() % static_cast<std::uint32_t>(limit)); }

 private:
  std::mt19937 engine_;
};

}  // namespace attn::stress
