#include "runtime/cuda/mapped.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "runtime/cuda/capture.h"
#include "runtime/cuda/context.h"

namespace attn::cuda {

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
