// What happens to the server, in order: messages, the end of the input, results of slow checks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "tools/lsp/messages.h"
#include "tools/lsp/workspace.h"

namespace attn::tools::lsp {

using Clock = std::chrono::steady_clock;

struct Received {
  Message message;
};
struct Ended {};
// Results of the slow checks of an analysis; what is null was not made this time.
struct Checked {
  std::shared_ptr<const Analysis> analysis;
  std::unique_ptr<diag::Sink> found;
  std::unique_ptr<MaskFacts> masks;
};
using Event = std::variant<Received, Ended, Checked>;

// Thread-safe.
class EventQueue {
 public:
  void push(Event event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    changed_.notify_one();
  }

  // Waits for one until `deadline`; without a deadline, as long as it takes.
  std::optional<Event> pop(std::optional<Clock::time_point> deadline) {
    std::unique_lock lock(mutex_);
    const auto has_one = [&] { return !events_.empty(); };
    if (!deadline) {
      changed_.wait(lock, has_one);
    } else if (!changed_.wait_until(lock, *deadline, has_one)) {
      return std::nullopt;
    }
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

  bool is_empty() {
    const std::lock_guard lock(mutex_);
    return events_.empty();
  }

  // Requests that the client no longer wants, by their ids as JSON text. Take them at the latest
  // with the message that cancels, since no request of before waits then.
  void cancel(const std::string& id) {
    const std::lock_guard lock(mutex_);
    cancelled_.insert(id);
  }
  bool take_cancelled(const std::string& id) {
    const std::lock_guard lock(mutex_);
    return cancelled_.erase(id) > 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  std::set<std::string> cancelled_;
};

}  // namespace attn::tools::lsp
