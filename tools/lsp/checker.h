// The slow checks, in a thread of their own: one at a time, of the newest version only.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "tools/lsp/queue.h"

namespace attn::tools::lsp {

class Checker {
 public:
  explicit Checker(EventQueue& results);
  // Does not wait for a check that is running (is_busy): end the process then.
  ~Checker();
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  // Replaces what waits.
  void start(std::shared_ptr<const Analysis> analysis);
  // Whether it still works or has work.
  bool is_busy() const;

 private:
  struct State;
  static void work(const std::shared_ptr<State>& state, EventQueue& results);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace attn::tools::lsp
