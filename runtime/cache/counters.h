// Event counters of a cache (counters.def).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace attn::cache {

enum class Counter : std::uint8_t {
#define ATTN_CACHE_COUNTER(name, what) name,
#include "runtime/cache/counters.def"
#undef ATTN_CACHE_COUNTER
};

inline constexpr std::size_t kCounterCount = 0
#define ATTN_CACHE_COUNTER(name, what) +1
#include "runtime/cache/counters.def"
#undef ATTN_CACHE_COUNTER
    ;

std::string_view to_string(Counter counter);

// A snapshot of the counters.
struct Counts {
  std::array<std::uint64_t, kCounterCount> values{};

  std::uint64_t operator[](Counter counter) const {
    return values[static_cast<std::size_t>(counter)];
  }
};

// Thread-safe. Each counter is exact, but a snapshot may read counters at slightly different
// moments.
class Counters {
 public:
  void add(Counter counter, std::uint64_t count = 1) {
    values_[static_cast<std::size_t>(counter)].fetch_add(count, std::memory_order_relaxed);
  }
  Counts read() const;
  Counts reset();  // returns the old values; no concurrent count is lost

 private:
  std::array<std::atomic<std::uint64_t>, kCounterCount> values_{};
};

}  // namespace attn::cache
