// Numbered tasks on several threads. Private to this room.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/base/status.h"

namespace attn::reference {

// What one thread does with one task after the other.
using Worker = std::function<Status(std::int64_t task)>;

// Runs tasks 0 to count - 1; `make_worker` is called in each thread for a worker of its own.
// `threads` below 1: as many as the machine has. The error is that of the first task that has one,
// whatever the number of threads; what was thrown (std::bad_alloc) is thrown again.
Status run_tasks(std::int64_t count, int threads, const std::function<Worker()>& make_worker);

}  // namespace attn::reference
