// Runs numbered tasks on several threads. Internal to compiler/reference.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/base/status.h"

namespace attn::reference {

// Runs one task; called by one thread for task after task.
using Worker = std::function<Status(std::int64_t task)>;

// Runs tasks 0 to count - 1; each thread calls `make_worker` for its own worker. `threads` below 1:
// as many as the machine has. Returns the error of the first task that fails, whatever the number
// of threads; rethrows exceptions (std::bad_alloc).
int threads_of(int threads);  // as many as run_tasks() takes
Status run_tasks(std::int64_t count, int threads, const std::function<Worker()>& make_worker);

}  // namespace attn::reference
