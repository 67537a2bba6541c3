// Builds by sizes: each once however many ask, here or on a thread of its own, and those that
// failed remembered.
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

namespace attn::shapes {

struct SizesHash {
  std::size_t operator()(const plan::Sizes& sizes) const noexcept;
};

// Any number of threads may ask. No lock is held while anything is built.
class Builds {
 public:
  // Makes what the sizes need, and keeps it where those who asked will look; ends soon after a stop
  // is requested. Called from the threads that ask, for different sizes at once.
  using Build = std::function<Status(const plan::Sizes& sizes, std::stop_token stop)>;

  explicit Builds(Build build) : build_(std::move(build)) {}
  Builds(const Builds&) = delete;
  Builds& operator=(const Builds&) = delete;
  // Requests a stop of what is being built in the background, and waits for its end; what is queued
  // is dropped. Nobody may be in now() then.
  ~Builds();

  // Builds on this thread, or waits for the one that does. Errors: those of the build; when it
  // failed before, that error again, unless `retry`.
  Status now(const plan::Sizes& sizes, bool retry);

  // Leaves the build to the background thread, which builds one after the other, and returns at
  // once. Ok: it is on its way. Errors: when it failed before, that error, unless `retry`.
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
  std::unordered_map<plan::Sizes, Task, SizesHash> tasks_;  // what was built has none
  std::deque<plan::Sizes> queue_;
  std::thread thread_;  // from the first later() on
};

}  // namespace attn::shapes
