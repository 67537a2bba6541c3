// Handlers for XLA's CPU that call those of libattn_xla.so as its GPU would, on the stand-in for
// the driver: the stream is the default one of device 0, and buffers are memory of the device
// meanwhile.
#include <dlfcn.h>

#include <mutex>
#include <vector>

#include "python/native/xla/ffi.h"
#include "tests/standin/standin.h"

namespace {

namespace ffi = attn::xla::ffi;
using Handler = void* (*)(void* call);

struct Handlers {
  Handler instantiate = nullptr, initialize = nullptr, execute = nullptr;
};
Handlers handlers;

const StandinCuda& driver() {
  static const StandinCuda* const found = [] {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<StandinCudaFunction>(dlsym(library, "standin_cuda"))();
  }();
  return *found;
}

ffi::Error* default_stream(ffi::GetStream* arguments) {
  arguments->stream = nullptr;
  return nullptr;
}

ffi::Error* first_device(ffi::GetDevice* arguments) {
  arguments->ordinal = 0;
  return nullptr;
}

// XLA's functions with two of them replaced: the same address for the same XLA.
const ffi::Api* of_gpu(const ffi::Api* api) {
  static const ffi::Api made = [api] {
    ffi::Api copy = *api;
    copy.size = sizeof copy;
    copy.get_stream = default_stream;
    copy.get_device = first_device;
    return copy;
  }();
  return &made;
}

void* on_gpu(void* frame, Handler handler) {
  const auto& given = *static_cast<const ffi::Call*>(frame);
  if (given.extensions != nullptr) return handler(frame);
  ffi::Call call = given;
  call.api = of_gpu(given.api);
  return handler(&call);
}

std::size_t bytes_of(const ffi::Buffer& buffer) {
  std::size_t bytes = 1;
  switch (buffer.type) {
    case ffi::Type::s64:
    case ffi::Type::f64: bytes = sizeof(std::int64_t); break;
    case ffi::Type::s32:
    case ffi::Type::f32: bytes = sizeof(std::int32_t); break;
    case ffi::Type::f16:
    case ffi::Type::bf16: bytes = sizeof(std::int16_t); break;
    default: break;
  }
  for (std::int64_t i = 0; i < buffer.rank; ++i) bytes *= static_cast<std::size_t>(buffer.dims[i]);
  return bytes;
}

void declare(const ffi::Buffers& buffers, int kind) {
  for (std::int64_t i = 0; i < buffers.count; ++i) {
    const auto& buffer = *static_cast<const ffi::Buffer*>(buffers.buffers[i]);
    driver().declare(buffer.data, bytes_of(buffer), kind);
  }
}

// One call at a time: memory is declared once.
void* with_buffers(void* frame, Handler handler) {
  static std::mutex running;
  const std::lock_guard lock(running);
  const auto& call = *static_cast<const ffi::Call*>(frame);
  if (call.extensions != nullptr) return handler(frame);
  declare(call.arguments, STANDIN_DEVICE);
  declare(call.results, STANDIN_DEVICE);
  void* const error = on_gpu(frame, handler);
  declare(call.results, STANDIN_FORGOTTEN);
  declare(call.arguments, STANDIN_FORGOTTEN);
  return error;
}

}  // namespace

#define STANDIN_API extern "C" __attribute__((visibility("default")))

STANDIN_API void standin_xla_use(void* instantiate, void* initialize, void* execute) {
  handlers = {reinterpret_cast<Handler>(instantiate), reinterpret_cast<Handler>(initialize),
              reinterpret_cast<Handler>(execute)};
}
STANDIN_API void* standin_xla_instantiate(void* call) { return on_gpu(call, handlers.instantiate); }
STANDIN_API void* standin_xla_initialize(void* call) {
  return with_buffers(call, handlers.initialize);
}
STANDIN_API void* standin_xla_execute(void* call) { return with_buffers(call, handlers.execute); }
