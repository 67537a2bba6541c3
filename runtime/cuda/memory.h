// Allocates device memory, and classifies addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/cuda/device.h"

namespace attn::cuda {

// Application callbacks that replace the driver's device memory allocation. Called from any thread,
// possibly several at once, with the device's context current; must not throw.
struct Allocator {
  // Returns memory aligned to 256 bytes, or null if out of memory. With a stream, only later work
  // on that stream uses the memory; without one, it may be used at once on any stream.
  std::function<void*(std::size_t bytes, void* stream)> allocate;
  // Frees memory. With a stream, work enqueued there may still use the memory; without one, nothing
  // does.
  std::function<void(void* address, std::size_t bytes, void* stream)> free;
};
using AllocatorPointer = std::shared_ptr<const Allocator>;  // null: the driver allocates

// Memory that an allocator gave for no stream.
struct Lent {
  AllocatorPointer allocator;
  void* address = nullptr;
  std::size_t bytes = 0;
};

// Owned device memory, 256-byte aligned. An allocator gets it back when the device has done all
// that was enqueued; if that cannot be known, because a stream is being captured, by a later
// buffer, or with the context. Copies and fills are synchronous: when they return, the bytes are
// visible to kernels on any stream. They wait for what the default stream was given before; for
// kernels on other streams they do not: synchronize those first. They may be made while other
// threads capture, but not while this one captures its own default stream (cudaStreamPerThread).
// Serves one thread at a time.
class DeviceBuffer {
 public:
  // Uninitialized. Zero bytes give a null buffer. Errors: cuda (out of memory, with the size);
  // invalid_argument if an allocator returns a misaligned address.
  static Result<DeviceBuffer> allocate(const Device& device, std::size_t bytes,
                                       AllocatorPointer allocator = nullptr);
  DeviceBuffer() = default;  // null, of size 0
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  void* data() const { return data_; }
  std::size_t size() const { return size_; }

  // Sets every byte to `byte`; 0xff makes every float a NaN and every signed integer -1.
  Status fill(std::uint8_t byte);
  // Copies bytes `offset .. offset + bytes.size()`. Errors: invalid_argument if out of range, cuda.
  Status upload(std::span<const std::byte> bytes, std::size_t offset = 0);
  Status download(std::span<std::byte> bytes, std::size_t offset = 0) const;

 private:
  void release() noexcept;
  Status check_range(std::size_t offset, std::size_t bytes) const;

  std::shared_ptr<const Context> context_;
  std::list<Lent> lent_;  // the memory, if it is an allocator's
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// Stream-ordered memory from the device's default pool or an allocator: usable by work enqueued on
// the stream during the lifetime of this object, which waits for nothing. Uninitialized.
class StreamBuffer {
 public:
  // The device and the allocator, which may be null, must outlive it. Errors: those of
  // DeviceBuffer; invalid_argument with an allocator on a stream that is being captured.
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
  unregistered,  // pageable host memory, or an address unknown to the driver
  host,          // pinned host memory
  device,
  managed,  // migrates between host and devices
};
std::string_view to_string(MemoryKind kind);

struct PointerInfo {
  MemoryKind kind = MemoryKind::unregistered;
  int device = -1;         // ordinal for `device`; -1 otherwise
  std::uintptr_t end = 0;  // one past the last byte of the allocation; 0 if unknown
};

// Enqueues a copy of `rows` rows of `row_bytes` bytes, `pitch` bytes apart, to contiguous rows, all
// in device memory. The device's context must be current. Errors: cuda.
Status copy_rows(const Device& device, void* stream, void* to, const void* from,
                 std::size_t row_bytes, std::size_t pitch, std::size_t rows);

// Copies from device memory of any owner, when the device has ended what was enqueued on `stream`;
// without one, all that was enqueued, which ends captures. The device's context must be current.
// Errors: cuda.
Status download(const Device& device, const void* from, std::span<std::byte> bytes,
                void* stream = nullptr);

// Enqueues a fill with zero bytes. The device's context must be current. Errors: cuda.
Status zero(const Device& device, void* stream, void* address, std::size_t bytes);

// Enqueues a fill of 4-byte words. The device's context must be current. Errors: cuda.
Status fill_words(const Device& device, void* stream, void* address, std::uint32_t word,
                  std::size_t count);

// Classifies any address. Needs a current context. Errors: cuda.
Result<PointerInfo> classify(const void* pointer);

// Owned pinned host memory of zero bytes, mapped into the device's address space. What the device
// writes, the host sees without a call of the driver. For one thread at a time.
class MappedBuffer {
 public:
  // Errors: cuda.
  static Result<MappedBuffer> allocate(const Device& device, std::size_t bytes);
  MappedBuffer(MappedBuffer&& other) noexcept;
  MappedBuffer& operator=(MappedBuffer&& other) noexcept;
  ~MappedBuffer();

  void* host() const { return host_; }
  void* device() const { return device_; }  // the same memory, as kernels address it

 private:
  MappedBuffer() = default;
  std::shared_ptr<const Context> context_;
  void* host_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace attn::cuda
