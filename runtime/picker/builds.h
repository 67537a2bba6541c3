// Runs builds by sizes: each once even if requested several times, on the calling or a background
// thread. Remembers failures.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <unordered_map>

#include "runtime/base/status.h"
#include "runtime/plan/shape.h"

namespace attn::picker {

struct SizesHash {
  std::size_t operator()(const plan::Sizes& sizes) const noexcept;
};

// Thread-safe. No lock is held during a build.
class Builds {
 public:
  // Builds and stores what the sizes need; returns soon after a stop is requested. Called from the
  // requesting threads, for different sizes at once.
  using Build = std::function<Status(const plan::Sizes& sizes, std::stop_token stop)>;

  explicit Builds(Build build) : build_(std::move(build)) {}
  Builds(const Builds&) = delete;
  Builds& operator=(const Builds&) = delete;
  // Stops background builds and waits for them; queued ones are dropped. No thread may be in now().
  ~Builds();

  // Builds on this thread, or waits for another thread's build. Errors: those of the build; after
  // an earlier failure that error again, unless `retry`.
  Status now(const plan::Sizes& sizes, bool retry);

  // Queues the build for the background thread, which builds one after another, and returns at
  // once. Ok: queued. Errors: after an earlier failure that error, unless `retry`.
  Status later(const plan::Sizes& sizes, bool retry);

 private:
  struct Task {
    enum class State : std::uint8_t { queued, running, failed } state = State::queued;
    std::optional<Error> error{};
  };

  Status run(const plan::Sizes& sizes, std::unique_lock<std::mutex>& lock);
  Status build(const plan::Sizes& sizes) const;
  void work();

  Build build_;
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<plan::Sizes, Task, SizesHash> tasks_;  // completed builds have none
  std::deque<plan::Sizes> queue_;
  std::thread thread_;  // started by the first later()
};

}  // namespace attn::picker
