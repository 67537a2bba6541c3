// Streams and events.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/base/status.h"
#include "runtime/cuda/device.h"

namespace attn::cuda {

// A stream that does not synchronize with the default stream. For one thread at a time.
class Stream {
 public:
  // Kernels of a stream of high priority begin before those of others that wait for the device too.
  enum class Priority : std::uint8_t { normal, high };
  static Result<Stream> create(const Device& device, Priority priority = Priority::normal);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream();

  void* handle() const { return handle_; }  // CUstream
  const std::shared_ptr<const Context>& context() const { return context_; }
  Status synchronize() const;

 private:
  Stream() = default;
  std::shared_ptr<const Context> context_;
  void* handle_ = nullptr;
};

// Whether work on the stream is being captured into a CUDA graph. The device's context must be
// current. Errors: cuda.
Result<bool> is_capturing(const Device& device, void* stream);

// A point in a stream. For one thread at a time.
class Event {
 public:
  // One without time stamps costs less, and orders streams alone.
  enum class Timing : std::uint8_t { yes, no };
  static Result<Event> create(const Device& device, Timing timing = Timing::yes);
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  Status record(void* stream);
  Status synchronize() const;       // waits until the device has reached the event
  Result<bool> reached() const;     // does not wait
  Status wait(void* stream) const;  // later work on `stream` waits until the event is reached
  // Milliseconds of device time from `start` to this event; both must have been reached.
  Result<double> milliseconds_since(const Event& start) const;

 private:
  Event() = default;
  std::shared_ptr<const Context> context_;
  void* handle_ = nullptr;
};

}  // namespace attn::cuda
