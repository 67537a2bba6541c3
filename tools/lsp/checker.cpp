#include "tools/lsp/checker.h"

namespace attn::tools::lsp {

struct Checker::State {
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<const Analysis> waiting;
  bool is_working = false;
  bool is_over = false;
};

Checker::Checker(EventQueue& results) : state_(std::make_shared<State>()) {
  thread_ = std::thread([state = state_, &results] { work(state, results); });
}

Checker::~Checker() {
  bool is_working = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_over = true;
    state_->waiting = nullptr;
    is_working = state_->is_working;
  }
  state_->changed.notify_one();
  if (is_working) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Checker::start(std::shared_ptr<const Analysis> analysis) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->waiting = std::move(analysis);
  }
  state_->changed.notify_one();
}

bool Checker::is_busy() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_working || state_->waiting != nullptr;
}

void Checker::work(const std::shared_ptr<State>& state, EventQueue& results) {
  std::unique_lock lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return state->is_over || state->waiting; });
    if (state->is_over) return;
    const std::shared_ptr<const Analysis> analysis = std::move(state->waiting);
    state->waiting = nullptr;
    state->is_working = true;
    lock.unlock();
    results.push(Checked{analysis, check_all(*analysis), nullptr});
    lock.lock();
    const bool is_newest = !state->waiting && !state->is_over;
    lock.unlock();
    Checked last{analysis, nullptr, nullptr};
    if (is_newest) last.masks = std::make_unique<MaskFacts>(mask_facts(*analysis));
    lock.lock();
    state->is_working = false;
    lock.unlock();
    results.push(std::move(last));  // now more work can be given
    lock.lock();
  }
}

}  // namespace attn::tools::lsp
