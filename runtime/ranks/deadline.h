// Calls a function unless it is destroyed before a time, or once there is no use in waiting for it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace attn::ranks {

class Deadline {
 public:
  // `in_vain` is asked a few times a second, by the thread that calls `late`.
  Deadline(std::chrono::milliseconds time, std::function<void()> late,
           std::function<bool()> in_vain)
      : thread_([this, time, late = std::move(late), in_vain = std::move(in_vain)] {
          if (!waits(std::chrono::steady_clock::now() + time, in_vain)) return;
          passed_ = true;
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
  // False: it was destroyed first.
  bool waits(std::chrono::steady_clock::time_point end, const std::function<bool()>& in_vain) {
    constexpr std::chrono::milliseconds kPause{200};
    std::unique_lock lock(mutex_);
    while (true) {
      const auto now = std::chrono::steady_clock::now();
      if (now >= end) return true;
      if (ended_.wait_until(lock, std::min(end, now + kPause), [this] { return over_; }))
        return false;
      lock.unlock();
      if (in_vain()) return true;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::atomic<bool> passed_{false};
  std::thread thread_;  // last: it uses the others
};

}  // namespace attn::ranks
