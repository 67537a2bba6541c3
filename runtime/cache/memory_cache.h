// The memory tier: shared values by key, each made once even if many threads request it at once.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "runtime/cache/counters.h"
#include "runtime/cache/lru.h"

namespace attn::cache {

struct MemoryOptions {
  MemoryLimits values{256, std::size_t{1} << 30};
  MemoryLimits refusals{256};
};

// Thread-safe. The lock is held only to look up and to insert, never while a value is made or
// destroyed. Values in use elsewhere are not evicted; an evicted value is destroyed on the evicting
// thread, before that call returns.
//
// An `unsupported` error, which retrying would not change, is cached and returned from then on. Any
// other error goes to the waiting threads, and the next request tries again.
template <typename T>
class MemoryCache {
 public:
  using Pointer = std::shared_ptr<T>;

  // `bytes_of` returns the size of a value. `counters` must outlive this.
  MemoryCache(const MemoryOptions& options, std::size_t (*bytes_of)(const T&), Counters& counters)
      : bytes_of_(bytes_of),
        counters_(counters),
        values_(options.values),
        refusals_(options.refusals) {}

  // The value for the key, made by `make()` if missing. `make` returns a Result<Pointer>, not null.
  // If several threads request a key at once, one makes it and the others wait, so `make` must not
  // request its own key. Errors: those of `make`.
  template <typename Make>
  Result<Pointer> get(const Key& key, const Make& make) {
    std::shared_ptr<Flight> flight;
    bool leads = false;
    {
      const std::lock_guard lock(mutex_);
      if (const Pointer* value = values_.find(key)) {
        counters_.add(Counter::hit);
        return *value;
      }
      if (const Error* refusal = refusals_.find(key)) {
        counters_.add(Counter::negative);
        return *refusal;
      }
      std::shared_ptr<Flight>& entry = flights_[key];
      leads = entry == nullptr;
      if (leads) entry = std::make_shared<Flight>();
      flight = entry;
    }
    counters_.add(leads ? Counter::miss : Counter::wait);
    if (!leads) return flight->wait();
    Landing landing(*this, key, *flight);
    landing.result = make();
    keep(key, landing.result);
    return landing.result;
  }

  // Drops all values and errors; values in use elsewhere remain valid.
  void clear() {
    std::unique_lock lock(mutex_);
    const std::vector<Pointer> values = values_.clear();
    const std::vector<Error> refusals = refusals_.clear();
    lock.unlock();
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }
  std::size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return values_.bytes();
  }

 private:
  // A value being made.
  class Flight {
   public:
    Result<Pointer> wait() {
      std::unique_lock lock(mutex_);
      landed_.wait(lock, [this] { return result_.has_value(); });
      return *result_;
    }
    void land(Result<Pointer> result) {
      const std::lock_guard lock(mutex_);
      result_ = std::move(result);
      landed_.notify_all();
    }

   private:
    std::mutex mutex_;
    std::condition_variable landed_;
    std::optional<Result<Pointer>> result_;
  };

  // Delivers a result to the waiting threads even if `make` throws.
  struct Landing {
    Landing(MemoryCache& its_cache, const Key& its_key, Flight& its_flight)
        : cache(its_cache), key(its_key), flight(its_flight) {}
    Landing(const Landing&) = delete;
    Landing& operator=(const Landing&) = delete;
    ~Landing() {
      {
        const std::lock_guard lock(cache.mutex_);
        cache.flights_.erase(key);
      }
      flight.land(std::move(result));
    }

    MemoryCache& cache;
    Key key;
    Flight& flight;
    Result<Pointer> result{ErrorCode::internal, "the thread that was making this value failed"};
  };

  void keep(const Key& key, const Result<Pointer>& made) {
    std::vector<Pointer> values;
    std::vector<Error> refusals;
    const std::size_t bytes = made.ok() ? bytes_of_(**made) : 0;
    std::unique_lock lock(mutex_);
    if (made.ok()) {
      values = values_.insert(key, *made, bytes);
    } else if (made.error().code == ErrorCode::unsupported) {
      refusals = refusals_.insert(key, made.error(), 0);
    }
    lock.unlock();
    counters_.add(Counter::evict, values.size());
  }

  std::size_t (*bytes_of_)(const T&);
  Counters& counters_;
  mutable std::mutex mutex_;
  Lru<Pointer> values_;
  Lru<Error> refusals_;
  std::unordered_map<Key, std::shared_ptr<Flight>, KeyHash> flights_;
};

}  // namespace attn::cache
