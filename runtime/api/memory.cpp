#include <fmt/format.h>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "runtime/api/failure.h"
#include "runtime/api/handles.h"
#include "runtime/api/names.h"
#include "runtime/io/element.h"

namespace attn::api {
namespace {

Result<DType> checked_dtype(attn_dtype number) {
  const auto type = dtype_of(number);
  if (type) return *type;
  return {ErrorCode::invalid_argument, fmt::format("{} is not an attn_dtype", number)};
}

Status store(DType type, std::span<const float> values, std::byte* elements) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = static_cast<double>(values[i]);
    if (!io::fits(type, value)) {
      return Status(
          ErrorCode::invalid_argument,
          fmt::format("value {} is {}, which {} cannot represent", i, value, to_string(type)));
    }
    io::store(type, value, elements + i * size_of(type));
  }
  return {};
}

}  // namespace

ATTN_API attn_status attn_memory_allocate(const attn_runtime* runtime, size_t bytes,
                                          attn_memory** memory, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{runtime, "the runtime"}, {memory, "the output pointer for the memory"}}));
    ATTN_ASSIGN(auto buffer, cuda::DeviceBuffer::allocate(runtime->runtime->device(), bytes));
    *memory = new attn_memory{std::move(buffer)};
    return {};
  });
}

ATTN_API void attn_memory_free(attn_memory* memory) { delete memory; }

ATTN_API void* attn_memory_data(const attn_memory* memory) {
  return memory == nullptr ? nullptr : memory->buffer.data();
}

ATTN_API attn_status attn_memory_upload(attn_memory* memory, size_t offset, const void* source,
                                        size_t bytes, attn_error* error) {
  return guarded(error, {{memory, "the device memory"}, {source, "the source"}}, [&] {
    return memory->buffer.upload({static_cast<const std::byte*>(source), bytes}, offset);
  });
}

ATTN_API attn_status attn_memory_download(const attn_memory* memory, size_t offset, void* target,
                                          size_t bytes, attn_error* error) {
  return guarded(error, {{memory, "the device memory"}, {target, "the target"}}, [&] {
    return memory->buffer.download({static_cast<std::byte*>(target), bytes}, offset);
  });
}

ATTN_API attn_status attn_stream_create(const attn_runtime* runtime, attn_stream** stream,
                                        attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{runtime, "the runtime"}, {stream, "the output pointer for the stream"}}));
    ATTN_ASSIGN(auto created, cuda::Stream::create(runtime->runtime->device()));
    *stream = new attn_stream{std::move(created)};
    return {};
  });
}

ATTN_API void attn_stream_destroy(attn_stream* stream) { delete stream; }

ATTN_API void* attn_stream_handle(const attn_stream* stream) {
  return stream == nullptr ? nullptr : stream->stream.handle();
}

ATTN_API attn_status attn_stream_synchronize(const attn_stream* stream, attn_error* error) {
  return guarded(error, {{stream, "the stream"}}, [&] { return stream->stream.synchronize(); });
}

ATTN_API attn_status attn_elements_from_f32(attn_dtype dtype, const float* values, size_t count,
                                            void* elements, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given({{values, "the values"}, {elements, "the target"}}));
    ATTN_ASSIGN(const DType type, checked_dtype(dtype));
    return store(type, {values, count}, static_cast<std::byte*>(elements));
  });
}

ATTN_API attn_status attn_elements_to_f32(attn_dtype dtype, const void* elements, size_t count,
                                          float* values, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given({{elements, "the elements"}, {values, "the target"}}));
    ATTN_ASSIGN(const DType type, checked_dtype(dtype));
    const auto* bytes = static_cast<const std::byte*>(elements);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(io::load(type, bytes + i * size_of(type)));
    }
    return {};
  });
}

}  // namespace attn::api
