#include "runtime/cudnn/handles.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace attn::cudnn {

Handles::Handles(std::shared_ptr<const Library> library, int most)
    : library_(std::move(library)), most_(std::clamp(most, 1, kMost)) {}

void Handles::clear() {
  count_.store(0, std::memory_order_release);
  for (Slot& slot : slots_) slot.session.reset();
}

Handles::Seat::Seat(Seat&& other) noexcept
    : handles_(std::exchange(other.handles_, nullptr)), number_(other.number_) {}

Handles::Seat::~Seat() {
  if (handles_ != nullptr) handles_->seats_.fetch_sub(1, std::memory_order_relaxed);
}

Result<Handles::Seat> Handles::take_seat(Growth growth) {
  const int taken = seats_.fetch_add(1, std::memory_order_relaxed) + 1;
  Seat seat(*this, taken - 1);
  ATTN_RETURN_IF_ERROR(reserve(growth == Growth::none ? 1 : taken));
  return seat;
}

Status Handles::reserve(int count) {
  const int wanted = std::min(count, most_);
  if (size() >= wanted) return {};
  const std::lock_guard lock(mutex_);
  for (int next = size(); next < wanted; ++next) {
    ATTN_ASSIGN(Session session, Session::create(library_));
    slots_[static_cast<std::size_t>(next)].session = std::make_unique<Session>(std::move(session));
    count_.store(next + 1, std::memory_order_release);
  }
  return {};
}

Handles::Lease Handles::lease(std::size_t& number) {
  const auto count = static_cast<std::size_t>(size());
  for (std::size_t tried = 1;; ++tried, ++number) {
    number %= count;
    Slot& slot = slots_[number];
    if (!slot.busy.load(std::memory_order_relaxed) &&
        !slot.busy.exchange(true, std::memory_order_acquire)) {
      return {slot.busy, *slot.session};
    }
    if (tried % count == 0) std::this_thread::yield();
  }
}

}  // namespace attn::cudnn
