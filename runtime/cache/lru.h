// A map with a limit on entries and bytes that evicts the least recently used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <memory_resource>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/cache/key.h"

namespace attn::cache {

struct MemoryLimits {
  std::size_t entries = 256;
  std::size_t bytes = std::numeric_limits<std::size_t>::max();
};

// Whether a value is in use elsewhere and must not be evicted.
template <typename Value>
bool is_pinned(const Value& /*value*/) {
  return false;
}
template <typename T>
bool is_pinned(const std::shared_ptr<T>& value) {
  return value.use_count() > 1;
}

// Serves one thread at a time. Pinned values stay and count, so the limits may be exceeded while
// values are pinned. Evicted values are returned to the caller, which destroys them without holding
// a lock.
//
// find() writes only to the entry. The queue has each entry once, with a possibly stale time of use
// that is refreshed when the entry reaches the front, so exactly the least recently used is
// evicted.
template <typename Value>
class Lru {
 public:
  explicit Lru(const MemoryLimits& limits) : limits_(limits) {}

  // Null if missing; otherwise counts as a use. Valid until any other member is called.
  Value* find(const Key& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    found->second.used = ++clock_;
    return &found->second.value;
  }

  // Inserts the value, unless it alone exceeds the limits. The key must not be present.
  [[nodiscard]] std::vector<Value> insert(const Key& key, Value value, std::size_t bytes) {
    if (bytes > limits_.bytes || limits_.entries == 0) return {};
    const auto [entry, added] = entries_.try_emplace(key, Entry{std::move(value), bytes, ++clock_});
    if (!added) return {};
    queue_.push({entry->second.used, &*entry});
    bytes_ += bytes;
    return trim();
  }

  // Evicts what exceeds the limits; call it also after pinned values were released.
  [[nodiscard]] std::vector<Value> trim() {
    std::vector<Value> gone;
    std::vector<Seen> pinned;
    while (is_over() && !queue_.empty()) {
      const Seen seen = queue_.top();
      queue_.pop();
      Entry& entry = seen.node->second;
      if (entry.used != seen.used) {
        queue_.push({entry.used, seen.node});
      } else if (is_pinned(entry.value)) {
        pinned.push_back(seen);
      } else {
        gone.push_back(std::move(entry.value));
        bytes_ -= entry.bytes;
        entries_.erase(entries_.find(seen.node->first));
      }
    }
    for (const Seen& seen : pinned) queue_.push(seen);
    return gone;
  }

  [[nodiscard]] std::vector<Value> clear() {
    std::vector<Value> gone;
    for (auto& [key, entry] : entries_) gone.push_back(std::move(entry.value));
    entries_.clear();
    queue_ = {};
    bytes_ = 0;
    return gone;
  }

  std::size_t size() const { return entries_.size(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    Value value;
    std::size_t bytes = 0;
    std::uint64_t used = 0;
  };
  using Entries = std::pmr::unordered_map<Key, Entry, KeyHash>;
  struct Seen {
    std::uint64_t used = 0;
    typename Entries::value_type* node = nullptr;
    bool operator<(const Seen& other) const { return used > other.used; }  // oldest on top
  };

  bool is_over() const { return entries_.size() > limits_.entries || bytes_ > limits_.bytes; }

  MemoryLimits limits_;
  std::pmr::unsynchronized_pool_resource pool_;  // keeps entries close together
  Entries entries_{&pool_};
  std::priority_queue<Seen> queue_;
  std::uint64_t clock_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace attn::cache
