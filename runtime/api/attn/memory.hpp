// Conveniences for small programs and tests: device memory, streams, elements. Part of attn.hpp.
#pragma once

#include <cstddef>

#include "memory.h"
#include "runtime.hpp"
#include "tensor.hpp"

namespace attn {
inline namespace v2 {

// Device memory: a convenience, see attn.h. For one thread at a time.
class Memory {
 public:
  Memory() = default;
  // Allocates device memory, aligned to 256 bytes and uninitialized. Errors: cuda.
  static Result<Memory> allocate(const Runtime& runtime, std::size_t bytes) {
    return detail::make<Memory, attn_memory>(attn_memory_allocate, runtime.handle(), bytes);
  }
  // The device address, as long as this object lives; null if it is empty.
  void* data() const { return attn_memory_data(handle_.get()); }
  // Copies host memory to the device memory from byte `offset` on, without waiting for other
  // streams. Errors: invalid_argument if out of range, cuda.
  Status upload(const void* source, std::size_t bytes, std::size_t offset = 0) {
    return detail::Caller()(attn_memory_upload, handle_.get(), offset, source, bytes);
  }
  // The same from the device to the host.
  Status download(void* target, std::size_t bytes, std::size_t offset = 0) const {
    return detail::Caller()(attn_memory_download, handle_.get(), offset, target, bytes);
  }
  explicit operator bool() const { return handle_ != nullptr; }
  explicit Memory(attn_memory* handle) : handle_(handle) {}  // owns it

 private:
  detail::Owned<attn_memory, attn_memory_free> handle_;
};

// A stream that does not synchronize with the default stream. For one thread at a time.
class Stream {
 public:
  Stream() = default;
  // Creates a stream on the runtime's device. Errors: cuda.
  static Result<Stream> create(const Runtime& runtime) {
    return detail::make<Stream, attn_stream>(attn_stream_create, runtime.handle());
  }
  void* handle() const { return attn_stream_handle(handle_.get()); }  // CUstream
  // Waits for all work on the stream. Errors: cuda.
  Status synchronize() const { return detail::Caller()(attn_stream_synchronize, handle_.get()); }
  explicit operator bool() const { return handle_ != nullptr; }
  explicit Stream(attn_stream* handle) : handle_(handle) {}  // owns it

 private:
  detail::Owned<attn_stream, attn_stream_destroy> handle_;
};

// Converts `count` host elements from f32, rounding floats to nearest even. Errors:
// invalid_argument for a dtype or value that cannot be converted.
inline Status from_f32(DType dtype, const float* values, std::size_t count, void* elements) {
  const auto plain = static_cast<attn_dtype>(dtype);
  return detail::Caller()(attn_elements_from_f32, plain, values, count, elements);
}
// The same from elements to f32.
inline Status to_f32(DType dtype, const void* elements, std::size_t count, float* values) {
  const auto plain = static_cast<attn_dtype>(dtype);
  return detail::Caller()(attn_elements_to_f32, plain, elements, count, values);
}

}  // namespace v2
}  // namespace attn
