// Values by key, up to a number of entries and bytes: what was not used for longest goes first.
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

// Whether a value is in use, and so must stay: one that others share.
template <typename Value>
bool is_pinned(const Value& /*value*/) {
  return false;
}
template <typename T>
bool is_pinned(const std::shared_ptr<T>& value) {
  return value.use_count() > 1;
}

// One thread at a time. Pinned values stay, and count: while they are more than the limits allow,
// so is what is kept. What goes is handed to the caller, who destroys it where no lock is held.
//
// A use writes to the entry alone. The queue has each entry once, with a time of use at which it
// was seen; that is brought up to date when the entry comes to the front, so what leaves is exactly
// the least recently used.
template <typename Value>
class Lru {
 public:
  explicit Lru(const MemoryLimits& limits) : limits_(limits) {}

  // Null when there is none; otherwise a use. Valid until the next call of anything else.
  Value* find(const Key& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    found->second.used = ++clock_;
    return &found->second.value;
  }

  // Keeps the value, unless it alone is larger than allowed. The key must not be there yet.
  [[nodiscard]] std::vector<Value> insert(const Key& key, Value value, std::size_t bytes) {
    if (bytes > limits_.bytes || limits_.entries == 0) return {};
    const auto [entry, added] = entries_.try_emplace(key, Entry{std::move(value), bytes, ++clock_});
    if (!added) return {};
    queue_.push({entry->second.used, &*entry});
    bytes_ += bytes;
    return trim();
  }

  // What must go for the limits to be kept: also after pinned values were let go.
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
    bool operator<(const Seen& other) const { return used > other.used; }  // the oldest on top
  };

  bool is_over() const { return entries_.size() > limits_.entries || bytes_ > limits_.bytes; }

  MemoryLimits limits_;
  std::pmr::unsynchronized_pool_resource pool_;  // entries lie close together
  Entries entries_{&pool_};
  std::priority_queue<Seen> queue_;
  std::uint64_t clock_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace attn::cache
