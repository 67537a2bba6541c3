#include "runtime/picker/builds.h"

#include <exception>

#include "runtime/base/hash.h"

namespace attn::picker {
namespace {

constexpr std::size_t kMostTasks = 4096;  // beyond it failures are forgotten

}  // namespace

std::size_t SizesHash::operator()(const plan::Sizes& sizes) const noexcept {
  std::array<std::int64_t, plan::kDims.size()> values;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = sizes[plan::kDims[i]];
  return hash128({reinterpret_cast<const char*>(values.data()), sizeof(values)}).low;
}

Builds::~Builds() {
  {
    const std::lock_guard lock(mutex_);
    stop_.request_stop();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

Status Builds::now(const plan::Sizes& sizes, bool retry) {
  std::unique_lock lock(mutex_);
  const auto task = tasks_.find(sizes);
  if (task != tasks_.end() && task->second.state == Task::State::failed && !retry) {
    return *task->second.error;
  }
  if (task == tasks_.end() || task->second.state != Task::State::running) return run(sizes, lock);
  const auto state = [&] { return tasks_.find(sizes); };
  changed_.wait(lock, [&] {
    return state() == tasks_.end() || state()->second.state != Task::State::running;
  });
  const auto ended = state();
  if (ended == tasks_.end() || !ended->second.error) return {};
  return *ended->second.error;
}

Status Builds::later(const plan::Sizes& sizes, bool retry) {
  const std::lock_guard lock(mutex_);
  const auto [task, added] = tasks_.try_emplace(sizes);
  if (!added) {
    if (task->second.state != Task::State::failed) return {};
    if (!retry) return *task->second.error;
    task->second = {};
  }
  queue_.push_back(sizes);
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  changed_.notify_all();
  return {};
}

Status Builds::run(const plan::Sizes& sizes, std::unique_lock<std::mutex>& lock) {
  if (tasks_.size() >= kMostTasks) {
    std::erase_if(tasks_, [](const auto& task) { return task.second.error.has_value(); });
  }
  tasks_[sizes] = {Task::State::running, std::nullopt};
  lock.unlock();
  const Status status = build(sizes);
  lock.lock();
  if (status.ok() || stop_.stop_requested()) {
    tasks_.erase(sizes);
  } else {
    tasks_[sizes] = {Task::State::failed, status.error()};
  }
  changed_.notify_all();
  return status;
}

// Catches exceptions of the caller's function, since waiting threads need a result.
Status Builds::build(const plan::Sizes& sizes) const {
  try {
    return build_(sizes, stop_.get_token());
  } catch (const std::exception& exception) {
    return {ErrorCode::internal,
            std::string("building a plan threw an exception: ") + exception.what()};
  }
}

void Builds::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_.stop_requested() || !queue_.empty(); });
    if (stop_.stop_requested()) return;
    const plan::Sizes sizes = queue_.front();
    queue_.pop_front();
    const auto task = tasks_.find(sizes);  // another thread may have taken it
    if (task == tasks_.end() || task->second.state != Task::State::queued) continue;
    (void)run(sizes, lock);
  }
}

}  // namespace attn::picker
