// Calls a function unless it is destroyed before a time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace attn::ranks {

class Deadline {
 public:
  Deadline(std::chrono::milliseconds time, std::function<void()> late)
      : thread_([this, time, late = std::move(late)] {
          std::unique_lock lock(mutex_);
          if (ended_.wait_for(lock, time, [this] { return over_; })) return;
          passed_ = true;
          lock.unlock();
          late();
        }) {}
  // Waits for the function, if it was called.
  ~Deadline() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  bool passed() const { return passed_; }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::atomic<bool> passed_{false};
  std::thread thread_;  // last: it uses the others
};

}  // namespace attn::ranks
