#include "runtime/cache/counters.h"

namespace attn::cache {
namespace {

constexpr std::array<std::string_view, kCounterCount> kNames = {
#define ATTN_CACHE_COUNTER(name, what) #name,
#include "runtime/cache/counters.def"
#undef ATTN_CACHE_COUNTER
};

}  // namespace

std::string_view to_string(Counter counter) { return kNames[static_cast<std::size_t>(counter)]; }

Counts Counters::read() const {
  Counts counts;
  for (std::size_t i = 0; i < kCounterCount; ++i) {
    counts.values[i] = values_[i].load(std::memory_order_relaxed);
  }
  return counts;
}

Counts Counters::reset() {
  Counts counts;
  for (std::size_t i = 0; i < kCounterCount; ++i) {
    counts.values[i] = values_[i].exchange(0, std::memory_order_relaxed);
  }
  return counts;
}

}  // namespace attn::cache
