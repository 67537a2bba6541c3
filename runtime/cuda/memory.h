// Device memory, and what kind of memory an address belongs to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/cuda/device.h"

namespace attn::cuda {

// Functions of the application's that device memory is taken from, instead of the driver's. Called
// from any thread, several at once, with the device's context current; they must not throw.
struct Allocator {
  // At a multiple of 256 bytes; null when there is none left. With a stream the memory is for what
  // is enqueued there from now on; without one for anything, at once.
  std::function<void*(std::size_t bytes, void* stream)> allocate;
  // With a stream what was enqueued there may still use the memory; without one nothing does.
  std::function<void(void* address, std::size_t bytes, void* stream)> free;
};
using AllocatorPointer = std::shared_ptr<const Allocator>;  // null: the driver's

// Owned device memory, 256-byte aligned. The copies and fills are synchronous: when they return,
// the bytes are there for kernels on any stream. They do not wait for kernels that run on
// non-blocking streams: synchronise those first. One thread at a time.
class DeviceBuffer {
 public:
  // Contents undefined. Zero bytes give a null buffer. Errors: cuda (out of memory, with the size);
  // invalid_argument for an allocator's address that is not aligned.
  static Result<DeviceBuffer> allocate(const Device& device, std::size_t bytes,
                                       AllocatorPointer allocator = nullptr);
  DeviceBuffer() = default;  // null, of size 0
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  void* data() const { return data_; }
  std::size_t size() const { return size_; }

  // Sets every byte; 0xff makes every float a NaN and every signed integer -1.
  Status fill(std::uint8_t byte);
  // Bytes `offset .. offset + bytes.size()`. Errors: invalid_argument when out of range, cuda.
  Status upload(std::span<const std::byte> bytes, std::size_t offset = 0);
  Status download(std::span<std::byte> bytes, std::size_t offset = 0) const;

 private:
  void release() noexcept;
  Status check_range(std::size_t offset, std::size_t bytes) const;

  std::shared_ptr<const Context> context_;
  AllocatorPointer allocator_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// Memory of the device's default pool, or an allocator's, in the order of a stream: there for what
// is enqueued on the stream between its making and its end, without waiting for either. Contents
// undefined.
class StreamBuffer {
 public:
  // The device and the allocator, which may be null, must outlive it. Errors: as DeviceBuffer's;
  // invalid_argument with an allocator on a stream that is being captured.
  static Result<StreamBuffer> allocate(const Device& device, void* stream, std::size_t bytes,
                                       const Allocator* allocator = nullptr);
  StreamBuffer(StreamBuffer&& other) noexcept;
  StreamBuffer& operator=(StreamBuffer&&) = delete;
  ~StreamBuffer();

  void* data() const { return data_; }

 private:
  StreamBuffer(const Context& context, const Allocator* allocator, void* stream)
      : context_(context), allocator_(allocator), stream_(stream) {}

  const Context& context_;
  const Allocator* allocator_;
  void* stream_ = nullptr;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

enum class MemoryKind : std::uint8_t {
  unregistered,  // ordinary host memory, or an address that the driver does not know
  host,          // host memory that the driver allocated or pinned
  device,
  managed,  // moves between host and devices
};
std::string_view to_string(MemoryKind kind);

struct PointerInfo {
  MemoryKind kind = MemoryKind::unregistered;
  int device = -1;         // ordinal for `device`; -1 otherwise
  std::uintptr_t end = 0;  // behind the last byte of the allocation; 0 when that is not known
};

// Enqueues a copy of `rows` rows of `row_bytes`, which lie `pitch` bytes apart, to rows one behind
// the other, all in device memory. The device's context must be current. Errors: cuda.
Status copy_rows(const Device& device, void* stream, void* to, const void* from,
                 std::size_t row_bytes, std::size_t pitch, std::size_t rows);

// Any address may be asked about. Needs a current context. Errors: cuda.
Result<PointerInfo> classify(const void* pointer);

}  // namespace attn::cuda
