#include "runtime/cuda/memory.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "runtime/cuda/capture.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/failure.h"
#include "runtime/cuda/stream.h"

namespace attn::cuda {
namespace {

constexpr std::uintptr_t kAlignment = 256;

// Allocates `bytes`, ordered by `stream` unless that is null.
Result<void*> allocate_by(const Allocator& allocator, const Device& device, std::size_t bytes,
                          void* stream) {
  void* address = allocator.allocate(bytes, stream);
  if (address == nullptr) {
    return out_of_memory(fmt::format(
        "the application's allocator could not allocate {} bytes on {}", bytes, device.name()));
  }
  if (reinterpret_cast<std::uintptr_t>(address) % kAlignment == 0) return address;
  allocator.free(address, bytes, stream);
  return {
      ErrorCode::invalid_argument,
      fmt::format("the application's allocator returned address {}, which is not a multiple of {} "
                  "bytes",
                  address, kAlignment)};
}

// The allocator is called at enqueue time: a graph would keep an address that is freed before the
// launch. The default stream cannot be captured.
Status check_not_captured(const Context& context, void* stream) {
  if (stream == nullptr) return {};
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  ATTN_RETURN_IF_ERROR(
      context.check(context.driver().stream_is_capturing(static_cast<CUstream>(stream), &status),
                    "querying the capture status of a stream"));
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return {};
  return Error{
      ErrorCode::invalid_argument,
      "a stream-ordered workspace from the application's allocator cannot be captured into a "
      "CUDA graph",
      {"bind with a workspace owned by the binding or the caller"}};
}

// Enqueues work on this thread's own default stream, and waits for it. Like the driver's
// synchronous copies, that stream waits for earlier work of the legacy default stream. But it may
// be used while blocking streams are captured; using the legacy stream would end such captures.
template <typename Enqueue>
Status on_this_thread(const Context& context, std::string_view action, const Enqueue& enqueue) {
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(context));
  const RelaxedCapture relaxed(context);
  ATTN_RETURN_IF_ERROR(context.check(enqueue(CU_STREAM_PER_THREAD), action));
  return context.check(context.driver().stream_synchronize(CU_STREAM_PER_THREAD), action);
}

}  // namespace

Result<DeviceBuffer> DeviceBuffer::allocate(const Device& device, std::size_t bytes,
                                            AllocatorPointer allocator) {
  DeviceBuffer buffer;
  buffer.context_ = device.context();
  if (bytes == 0) return buffer;
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(*buffer.context_));
  if (allocator != nullptr) {
    buffer.lent_.emplace_back();  // before there is memory to lose, if the host's is exhausted
    ATTN_ASSIGN(buffer.data_, allocate_by(*allocator, device, bytes, nullptr));
    buffer.lent_.front() = {std::move(allocator), buffer.data_, bytes};
    buffer.size_ = bytes;
    return buffer;
  }
  const RelaxedCapture relaxed(device);
  CUdeviceptr address = 0;
  ATTN_RETURN_IF_ERROR(
      buffer.context_->check(buffer.context_->driver().memory_allocate(&address, bytes),
                             fmt::format("allocating {} bytes on {}", bytes, device.name())));
  buffer.data_ = reinterpret_cast<void*>(address);
  buffer.size_ = bytes;
  return buffer;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  context_ = std::exchange(other.context_, nullptr);
  lent_ = std::exchange(other.lent_, {});
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

DeviceBuffer::~DeviceBuffer() { release(); }

void DeviceBuffer::release() noexcept {
  if (data_ == nullptr) return;
  if (!lent_.empty()) {
    context_->give_back(std::move(lent_));
  } else if (Scope scope; scope.enter(*context_).ok()) {
    const RelaxedCapture relaxed(*context_);
    context_->driver().memory_free(to_address(data_));
  }
  data_ = nullptr;
}

Status DeviceBuffer::check_range(std::size_t offset, std::size_t bytes) const {
  if (offset <= size_ && bytes <= size_ - offset) return {};
  return Status(ErrorCode::invalid_argument,
                fmt::format("bytes {}..{} are outside a device buffer of {} bytes", offset,
                            offset + bytes, size_));
}

Status DeviceBuffer::fill(std::uint8_t byte) {
  if (size_ == 0) return {};
  return on_this_thread(*context_, "filling a buffer", [&](CUstream stream) {
    return context_->driver().memset_bytes_async(to_address(data_), byte, size_, stream);
  });
}

Status DeviceBuffer::upload(std::span<const std::byte> bytes, std::size_t offset) {
  ATTN_RETURN_IF_ERROR(check_range(offset, bytes.size()));
  if (bytes.empty()) return {};
  return on_this_thread(*context_, "copying to the device", [&](CUstream stream) {
    return context_->driver().copy_to_device_async(to_address(data_) + offset, bytes.data(),
                                                   bytes.size(), stream);
  });
}

Status DeviceBuffer::download(std::span<std::byte> bytes, std::size_t offset) const {
  ATTN_RETURN_IF_ERROR(check_range(offset, bytes.size()));
  if (bytes.empty()) return {};
  return on_this_thread(*context_, "copying from the device", [&](CUstream stream) {
    return context_->driver().copy_to_host_async(bytes.data(), to_address(data_) + offset,
                                                 bytes.size(), stream);
  });
}

Result<StreamBuffer> StreamBuffer::allocate(const Device& device, void* stream, std::size_t bytes,
                                            const Allocator* allocator) {
  if (allocator != nullptr) ATTN_RETURN_IF_ERROR(check_not_captured(*device.context(), stream));
  // For an allocator, null means no stream.
  if (allocator != nullptr && stream == nullptr) stream = CU_STREAM_LEGACY;
  StreamBuffer buffer(*device.context(), allocator, stream);
  buffer.size_ = bytes;
  if (allocator != nullptr) {
    ATTN_ASSIGN(buffer.data_, allocate_by(*allocator, device, bytes, stream));
    return buffer;
  }
  CUdeviceptr address = 0;
  ATTN_RETURN_IF_ERROR(device.context()->check(
      device.context()->driver().memory_allocate_async(&address, bytes,
                                                       static_cast<CUstream>(stream)),
      fmt::format("allocating {} bytes on a stream of {}", bytes, device.name())));
  buffer.data_ = reinterpret_cast<void*>(address);
  return buffer;
}

StreamBuffer::StreamBuffer(StreamBuffer&& other) noexcept
    : context_(other.context_),
      allocator_(other.allocator_),
      stream_(other.stream_),
      data_(std::exchange(other.data_, nullptr)),
      size_(other.size_) {}

StreamBuffer::~StreamBuffer() {
  if (data_ == nullptr) return;
  if (allocator_ != nullptr) {
    allocator_->free(data_, size_, stream_);
  } else {
    context_.driver().memory_free_async(to_address(data_), static_cast<CUstream>(stream_));
  }
}

std::string_view to_string(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::unregistered: return "host memory";
    case MemoryKind::host: return "pinned host memory";
    case MemoryKind::device: return "device memory";
    case MemoryKind::managed: return "managed memory";
  }
  return "unknown memory";
}

Status copy_rows(const Device& device, void* stream, void* to, const void* from,
                 std::size_t row_bytes, std::size_t pitch, std::size_t rows) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = to_address(from);
  copy.srcPitch = pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to_address(to);
  copy.dstPitch = row_bytes;
  copy.WidthInBytes = row_bytes;
  copy.Height = rows;
  const Context& context = *device.context();
  return context.check(context.driver().copy_rows_async(&copy, static_cast<CUstream>(stream)),
                       "copying rows");
}

Status download(const Device& device, const void* from, std::span<std::byte> bytes, void* stream) {
  if (bytes.empty()) return {};
  const Context& context = *device.context();
  std::optional<Event> before;
  if (stream == nullptr) {
    ATTN_RETURN_IF_ERROR(
        context.check(context.driver().context_synchronize(), "waiting for the device"));
  } else {
    ATTN_ASSIGN(before, Event::create(device, Event::Timing::no));
    ATTN_RETURN_IF_ERROR(before->record(stream));
    ATTN_RETURN_IF_ERROR(before->wait(CU_STREAM_PER_THREAD));
  }
  return on_this_thread(context, "copying from the device", [&](CUstream own) {
    return context.driver().copy_to_host_async(bytes.data(), to_address(from), bytes.size(), own);
  });
}

Status zero(const Device& device, void* stream, void* address, std::size_t bytes) {
  const Context& context = *device.context();
  return context.check(context.driver().memset_bytes_async(to_address(address), 0, bytes,
                                                           static_cast<CUstream>(stream)),
                       "zeroing device memory");
}

Status fill_words(const Device& device, void* stream, void* address, std::uint32_t word,
                  std::size_t count) {
  const Context& context = *device.context();
  return context.check(context.driver().memset_words_async(to_address(address), word, count,
                                                           static_cast<CUstream>(stream)),
                       "filling device memory");
}

// cuPointerGetAttributes returns zeros for addresses unknown to the driver; cuPointerGetAttribute
// fails for them.
Result<PointerInfo> classify(const void* pointer) {
  ATTN_ASSIGN(const Driver* driver, cuda::driver());
  CUmemorytype type{};
  int managed = 0;
  int ordinal = -1;
  CUdeviceptr start = 0;
  std::size_t size = 0;
  std::array<CUpointer_attribute, 5> attributes = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  std::array<void*, 5> values = {&type, &managed, &ordinal, &start, &size};
  ATTN_RETURN_IF_ERROR(driver->check(
      driver->pointer_get_attributes(static_cast<unsigned>(attributes.size()), attributes.data(),
                                     values.data(), to_address(pointer)),
      "querying the memory type of an address"));
  const auto end = static_cast<std::uintptr_t>(start + size);
  if (managed != 0) return PointerInfo{MemoryKind::managed, -1, end};
  if (type == CU_MEMORYTYPE_HOST) return PointerInfo{MemoryKind::host, -1, end};
  if (type == CU_MEMORYTYPE_DEVICE) return PointerInfo{MemoryKind::device, ordinal, end};
  return PointerInfo{};
}

Result<MappedBuffer> MappedBuffer::allocate(const Device& device, std::size_t bytes) {
  MappedBuffer buffer;
  buffer.context_ = device.context();
  const Context& context = *buffer.context_;
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(context));
  const RelaxedCapture relaxed(context);
  ATTN_RETURN_IF_ERROR(
      context.check(context.driver().host_allocate(
                        &buffer.host_, bytes, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE),
                    fmt::format("allocating {} bytes of pinned host memory", bytes)));
  std::memset(buffer.host_, 0, bytes);
  CUdeviceptr address = 0;
  ATTN_RETURN_IF_ERROR(
      context.check(context.driver().host_get_device_pointer(&address, buffer.host_, 0),
                    "mapping pinned host memory"));
  buffer.device_ = reinterpret_cast<void*>(address);
  return buffer;
}

MappedBuffer::MappedBuffer(MappedBuffer&& other) noexcept
    : context_(std::move(other.context_)),
      host_(std::exchange(other.host_, nullptr)),
      device_(std::exchange(other.device_, nullptr)) {}

MappedBuffer& MappedBuffer::operator=(MappedBuffer&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(host_, other.host_);
  std::swap(device_, other.device_);
  return *this;
}

MappedBuffer::~MappedBuffer() {
  if (host_ == nullptr) return;
  const RelaxedCapture relaxed(*context_);
  Scope scope;
  if (scope.enter(*context_).ok()) context_->driver().host_free(host_);
}

}  // namespace attn::cuda
