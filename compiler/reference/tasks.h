// Runs numbered tasks on several threads, and tells how long they take. Internal to
// compiler/reference.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "compiler/reference/evaluate.h"
#include "compiler/reference/problem.h"
#include "runtime/base/status.h"

namespace attn::reference {

// Measures some rows of the forward, and tells the observer how long all rows take on so many
// threads if each needs `cost` times as long. Returns the observer's error.
Status tell_pace(const Problem& problem, std::int64_t threads, double cost,
                 const Observer& observer);

// Counts rows that are done. Thread-safe; the observer must outlive it.
class Advance {
 public:
  Advance(std::int64_t rows, const Observer& observer);
  void row();

 private:
  const std::int64_t rows_;
  const std::int64_t step_;  // the observer is told at each such number of rows
  const Observer& observer_;
  std::atomic<std::int64_t> done_ = 0;
};

// Runs one task; called by one thread for task after task.
using Worker = std::function<Status(std::int64_t task)>;

// Runs tasks 0 to count - 1; each thread calls `make_worker` for its own worker. `threads` below 1:
// as many as the machine has. Returns the error of the first task that fails, whatever the number
// of threads; rethrows exceptions (std::bad_alloc).
int threads_of(int threads);  // as many as run_tasks() takes
Status run_tasks(std::int64_t count, int threads, const std::function<Worker()>& make_worker);

}  // namespace attn::reference
