// Watches the exchanges of a rank, so that none waits forever for a rank that does not answer.
//
// Nobody waits for an exchange on the host, and one that is in a CUDA graph is not even enqueued by
// the host. So the device itself counts exchanges that begin and end, in memory of the host, and a
// thread looks at the counters. It calls no CUDA function: while a stream is captured, a call of
// any thread might spoil the capture.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/base/status.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/memory.h"
#include "runtime/ranks/lost.h"
#include "runtime/ranks/transport.h"

namespace attn::ranks {

// The time of a watch: that of the host, but for tests. Thread-safe.
class WatchTime {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~WatchTime() = default;
  virtual Clock::time_point now() const { return Clock::now(); }
  // Waits until `changed` is notified and it is done, or for so long.
  virtual void wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                    std::chrono::milliseconds most, const std::function<bool()>& is_done) {
    changed.wait_for(lock, most, is_done);
  }

  static WatchTime& of_host();
};

// Thread-safe.
class Watch {
 public:
  // Watches until it is destroyed, which must be before `transport` and `time` are, and after the
  // device's last access to the counters. Errors: cuda.
  static Result<std::unique_ptr<Watch>> start(const cuda::Device& device, Transport& transport,
                                              std::chrono::milliseconds timeout,
                                              AskForLost lost = {},
                                              WatchTime& time = WatchTime::of_host());
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Addresses for the device of two u32 counters of executes (kernel attn_ranks_mark adds 1): those
  // whose exchanges have begun, and of these the ones whose exchanges have ended.
  std::uint64_t begun_address() const;
  std::uint64_t ended_address() const;

  // Call it before an execute enqueues its marks: the thread sleeps while nothing is under way. If
  // they are captured, executes come unannounced from then on, and it never sleeps again.
  void enqueued(bool is_captured = false);

  // Ok, or what went wrong: an execute whose exchanges did not end within the time, or for which
  // ranks wait in vain, an error that the transport noticed, or what fail() was given; the
  // transport is aborted then. Errors: nccl, and others given to fail().
  Status status() const;
  // Records an error that the caller met, unless there is one already, and aborts the transport.
  void fail(const Error& error);

 private:
  struct Counters {
    std::uint32_t begun = 0, ended = 0;
    bool operator==(const Counters&) const = default;
  };
  Watch(cuda::MappedBuffer memory, Transport& transport, std::chrono::milliseconds timeout,
        AskForLost lost, WatchTime& time);
  void run();
  void look();
  Status check(const Counters& now);
  Counters read() const;
  // True if every announced execute has finished. Both need the lock.
  bool has_ended(const Counters& now) const;
  bool is_idle(const Counters& now) const;
  std::chrono::milliseconds pause(const Counters& now) const;

  cuda::MappedBuffer memory_;
  Transport& transport_;
  const std::chrono::milliseconds timeout_;
  WatchTime& time_;
  Lost lost_;
  // State of the thread alone: the counters, and since when they have not changed.
  Counters seen_;
  std::chrono::steady_clock::time_point since_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::uint32_t announced_ = 0;  // executes that are enqueued, not counting graphs
  bool is_captured_ = false;
  bool is_asleep_ = false;
  bool is_over_ = false;
  std::optional<Error> error_;
  std::atomic<bool> has_failed_{false};  // whether error_ is set
  std::thread thread_;
};

}  // namespace attn::ranks
