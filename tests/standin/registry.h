// Registry of live objects by handle. Handles are never reused, so that handles of destroyed
// objects are detected.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace attn::standin {

// Thread-safe. Lookups do not synchronize with each other (ThreadSanitizer understands shared
// locks).
template <typename T>
class Registry {
 public:
  // Registries with different tags have disjoint handles.
  explicit Registry(std::uintptr_t tag) : last_(tag << 40) {}

  void* add(std::unique_ptr<T> value) {
    const std::unique_lock lock(mutex_);
    void* handle = reinterpret_cast<void*>(last_ += 16);
    values_.emplace(handle, std::move(value));
    return handle;
  }

  // Null if the object is not alive. Valid until the object is removed.
  T* find(const void* handle) const {
    const std::shared_lock lock(mutex_);
    const auto found = values_.find(handle);
    return found == values_.end() ? nullptr : found->second.get();
  }

  std::unique_ptr<T> remove(const void* handle) {
    const std::unique_lock lock(mutex_);
    const auto found = values_.find(handle);
    if (found == values_.end()) return nullptr;
    std::unique_ptr<T> value = std::move(found->second);
    values_.erase(found);
    return value;
  }

  // Keeps a removed object that is still in use.
  void bury(std::unique_ptr<T> value) {
    const std::unique_lock lock(mutex_);
    buried_.push_back(std::move(value));
  }

  std::int64_t size() const {
    const std::shared_lock lock(mutex_);
    return static_cast<std::int64_t>(values_.size());
  }

  template <typename Visit>
  void for_each(const Visit& visit) const {
    const std::shared_lock lock(mutex_);
    for (const auto& [handle, value] : values_) visit(*value);
  }

  template <typename Predicate>
  std::int64_t count_if(const Predicate& predicate) const {
    const std::shared_lock lock(mutex_);
    std::int64_t count = 0;
    for (const auto& [handle, value] : values_) count += predicate(*value) ? 1 : 0;
    return count;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<const void*, std::unique_ptr<T>> values_;
  std::vector<std::unique_ptr<T>> buried_;
  std::uintptr_t last_;
};

}  // namespace attn::standin
