#include "runtime/cuda/stream.h"

#include <utility>

#include "runtime/cuda/context.h"

namespace attn::cuda {
namespace {

CUstream as_stream(void* handle) { return static_cast<CUstream>(handle); }
CUevent as_event(void* handle) { return static_cast<CUevent>(handle); }

}  // namespace

Result<Stream> Stream::create(const Device& device, Priority priority) {
  Stream stream;
  stream.context_ = device.context();
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(*stream.context_));
  CUstream handle = nullptr;
  const Driver& driver = stream.context_->driver();
  constexpr int kHighest = -1000;  // clamped to what the device has
  const CUresult result =
      priority == Priority::high
          ? driver.stream_create_with_priority(&handle, CU_STREAM_NON_BLOCKING, kHighest)
          : driver.stream_create(&handle, CU_STREAM_NON_BLOCKING);
  ATTN_RETURN_IF_ERROR(stream.context_->check(result, "creating a stream"));
  stream.handle_ = handle;
  return stream;
}

Stream::Stream(Stream&& other) noexcept
    : context_(std::move(other.context_)), handle_(std::exchange(other.handle_, nullptr)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(handle_, other.handle_);
  return *this;
}

Stream::~Stream() {
  if (handle_ != nullptr) context_->driver().stream_destroy(as_stream(handle_));
}

Status Stream::synchronize() const {
  return context_->check(context_->driver().stream_synchronize(as_stream(handle_)),
                         "waiting for a stream");
}

Result<bool> is_capturing(const Device& device, void* stream) {
  if (stream == nullptr) return false;  // the default stream cannot be captured
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  ATTN_RETURN_IF_ERROR(device.context()->check(
      device.context()->driver().stream_is_capturing(as_stream(stream), &status),
      "querying the capture status of a stream"));
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

Result<Event> Event::create(const Device& device, Timing timing) {
  Event event;
  event.context_ = device.context();
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(*event.context_));
  CUevent handle = nullptr;
  ATTN_RETURN_IF_ERROR(event.context_->check(
      event.context_->driver().event_create(
          &handle, timing == Timing::yes ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING),
      "creating an event"));
  event.handle_ = handle;
  return event;
}

Event::Event(Event&& other) noexcept
    : context_(std::move(other.context_)), handle_(std::exchange(other.handle_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(handle_, other.handle_);
  return *this;
}

Event::~Event() {
  if (handle_ != nullptr) context_->driver().event_destroy(as_event(handle_));
}

Status Event::record(void* stream) {
  return context_->check(context_->driver().event_record(as_event(handle_), as_stream(stream)),
                         "recording an event");
}

Status Event::synchronize() const {
  return context_->check(context_->driver().event_synchronize(as_event(handle_)),
                         "waiting for an event");
}

Result<bool> Event::reached() const {
  const CUresult result = context_->driver().event_query(as_event(handle_));
  if (result == CUDA_ERROR_NOT_READY) return false;
  ATTN_RETURN_IF_ERROR(context_->check(result, "querying an event"));
  return true;
}

Status Event::wait(void* stream) const {
  return context_->check(
      context_->driver().stream_wait_event(as_stream(stream), as_event(handle_), 0),
      "letting a stream wait for an event");
}

Result<double> Event::milliseconds_since(const Event& start) const {
  float milliseconds = 0;
  ATTN_RETURN_IF_ERROR(
      context_->check(context_->driver().event_elapsed_time(&milliseconds, as_event(start.handle_),
                                                            as_event(handle_)),
                      "reading the time between two events"));
  return static_cast<double>(milliseconds);
}

}  // namespace attn::cuda
