// How long an evaluation takes, and how far it is. Internal to compiler/reference.
#pragma once

#include <atomic>
#include <cstdint>

#include "compiler/reference/evaluate.h"
#include "compiler/reference/problem.h"

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

}  // namespace attn::reference
