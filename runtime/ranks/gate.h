// Lets calls of a communicator through until it is aborted: after that it must not be used.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace attn::ranks {

// Thread-safe.
class Gate {
 public:
  // Enters: until leave(), the communicator may be used. False: it is closed, and leave() must not
  // be called.
  bool enter() {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    ++inside_;
    return true;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0) empty_.notify_all();
  }

  // Lets no more calls in, and waits for those inside, but no longer than `most`: one that waits
  // for another rank ends only when the communicator is aborted. False: it was closed before.
  bool close(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    if (closed_) return false;
    closed_ = true;
    empty_.wait_for(lock, most, [this] { return inside_ == 0; });
    return true;
  }

  bool is_closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable empty_;
  int inside_ = 0;
  bool closed_ = false;
};

}  // namespace attn::ranks
