#include "compiler/reference/tasks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

namespace attn::reference {
namespace {

// Hands out tasks. Keeps the error of the first task that fails, and exceptions, which must not
// leave a thread's function.
class Queue {
 public:
  explicit Queue(std::int64_t count) : count_(count) {}

  void work(const std::function<Worker()>& make_worker) {
    try {
      run(make_worker());
    } catch (...) {
      const std::lock_guard lock(mutex_);
      thrown_ = std::current_exception();
      failed_ = -1;
    }
  }

  // Call after all threads are done. Rethrows exceptions.
  Status status() const {
    if (thrown_) std::rethrow_exception(thrown_);
    return error_ ? Status(*error_) : Status();
  }

 private:
  void run(const Worker& worker) {
    for (std::int64_t task = next_++; task < count_ && task < failed_; task = next_++) {
      const Status status = worker(task);
      if (!status.ok()) fail(task, status.error());
    }
  }

  void fail(std::int64_t task, const Error& error) {
    const std::lock_guard lock(mutex_);
    if (task >= failed_) return;
    failed_ = task;
    error_ = error;
  }

  const std::int64_t count_;
  std::atomic<std::int64_t> next_ = 0;
  std::atomic<std::int64_t> failed_ = std::numeric_limits<std::int64_t>::max();
  std::mutex mutex_;
  std::optional<Error> error_;
  std::exception_ptr thrown_;
};

}  // namespace

int threads_of(int threads) {
  return threads > 0 ? threads
                     : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

Status run_tasks(std::int64_t count, int threads, const std::function<Worker()>& make_worker) {
  threads = threads_of(threads);
  Queue queue(count);
  std::vector<std::jthread> others;
  for (std::int64_t i = 1; i < std::min<std::int64_t>(threads, count); ++i) {
    try {
      others.emplace_back([&] { queue.work(make_worker); });
    } catch (const std::system_error&) {
      break;  // no more threads: continue with the existing ones
    }
  }
  queue.work(make_worker);
  others.clear();  // joins
  return queue.status();
}

}  // namespace attn::reference
