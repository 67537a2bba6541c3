#include "runtime/ranks/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/ranks/seconds.h"

namespace attn::ranks {
namespace {

// How often the counters are looked at, while exchanges are under way or may be.
constexpr std::chrono::milliseconds kOften{50}, kSeldom{200};
constexpr std::chrono::hours kForever{24};  // that it sleeps, unless it is woken

std::uint32_t* counter(const cuda::MappedBuffer& memory, int index) {
  return static_cast<std::uint32_t*>(memory.host()) + index;
}

std::uint64_t address(const cuda::MappedBuffer& memory, int index) {
  return reinterpret_cast<std::uint64_t>(static_cast<std::uint32_t*>(memory.device()) + index);
}

}  // namespace

WatchTime& WatchTime::of_host() {
  static WatchTime time;
  return time;
}

Result<std::unique_ptr<Watch>> Watch::start(const cuda::Device& device, Transport& transport,
                                            std::chrono::milliseconds timeout, AskForLost lost,
                                            WatchTime& time) {
  ATTN_ASSIGN(cuda::MappedBuffer memory,
              cuda::MappedBuffer::allocate(device, 2 * sizeof(std::uint32_t)));
  return std::unique_ptr<Watch>(
      new Watch(std::move(memory), transport, timeout, std::move(lost), time));
}

Watch::Watch(cuda::MappedBuffer memory, Transport& transport, std::chrono::milliseconds timeout,
             AskForLost lost, WatchTime& time)
    : memory_(std::move(memory)),
      transport_(transport),
      timeout_(timeout),
      time_(time),
      lost_(std::move(lost)),
      since_(time_.now()),
      thread_([this] { run(); }) {}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::uint64_t Watch::begun_address() const { return address(memory_, 0); }
std::uint64_t Watch::ended_address() const { return address(memory_, 1); }

void Watch::enqueued(bool is_captured) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_captured) {
      is_captured_ = true;
    } else {
      ++announced_;
    }
    wake = std::exchange(is_asleep_, false);
  }
  if (wake) changed_.notify_one();
}

Status Watch::status() const {
  if (!has_failed_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  return *error_;
}

void Watch::fail(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = error;
    has_failed_.store(true, std::memory_order_release);
    is_asleep_ = false;
  }
  changed_.notify_one();
  transport_.abort();
}

void Watch::run() {
  std::unique_lock lock(mutex_);
  while (!is_over_ && !error_) {
    const Counters now = read();
    const auto is_done = [this] { return is_over_ || error_; };
    if (is_idle(now)) {
      is_asleep_ = true;
      time_.wait(changed_, lock, kForever, [&] { return is_done() || !is_asleep_; });
    } else {
      time_.wait(changed_, lock, pause(now), is_done);
    }
    if (is_done()) break;
    lock.unlock();
    look();
    lock.lock();
  }
}

void Watch::look() {
  const Counters now = read();
  if (now != std::exchange(seen_, now)) since_ = time_.now();
  if (now.begun == now.ended) since_ = time_.now();
  const Status checked = check(now);
  if (!checked.ok()) fail(checked.error());
}

Status Watch::check(const Counters& now) {
  if (time_.now() - since_ >= timeout_) {
    return Error{
        ErrorCode::nccl,
        fmt::format("another rank does not answer: exchanges have not ended for {}",
                    seconds(timeout_)),
        {fmt::format("these are of execute {} of rank {} of {}", now.begun, transport_.rank(),
                     transport_.ranks()),
         "a rank may have failed, or not have executed the same directions in the same order"}};
  }
  {
    // Between graphs it looks, too, but then the caller may have given up the communicator.
    const std::lock_guard lock(mutex_);
    if (has_ended(now)) return {};
  }
  ATTN_RETURN_IF_ERROR(lost_.check(since_, time_.now()));
  return transport_.failed();
}

// The device writes them.
Watch::Counters Watch::read() const {
  const auto value = [this](int index) {
    return std::atomic_ref(*counter(memory_, index)).load(std::memory_order_acquire);
  };
  Counters counters;
  counters.ended = value(1);
  counters.begun = value(0);
  return counters;
}

// Executes that are announced may have to wait for the device before their exchanges begin.
bool Watch::has_ended(const Counters& now) const {
  const auto ahead = static_cast<std::int32_t>(announced_ - now.ended);
  return now.begun == now.ended && ahead <= 0;
}

bool Watch::is_idle(const Counters& now) const { return !is_captured_ && has_ended(now); }

std::chrono::milliseconds Watch::pause(const Counters& now) const {
  const std::chrono::milliseconds usual = now.begun == now.ended ? kSeldom : kOften;
  return std::clamp(timeout_ / 8, std::chrono::milliseconds(1), usual);
}

}  // namespace attn::ranks
