// Handlers for jax_peers.py: what a call costs by XLA, without work and with a kernel of no work.
#include <cuda.h>
#include <dlfcn.h>

#include "python/native/xla/ffi.h"

namespace {

namespace ffi = attn::xla::ffi;

constexpr char kNoWork[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.entry no_work() { ret; }\n";

template <typename Function>
Function* symbol(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return driver == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(driver, name));
}

// The kernel, loaded where the first call runs; null if the driver does not load it.
CUfunction no_work() {
  const auto load = symbol<decltype(cuModuleLoadData)>("cuModuleLoadData");
  const auto find = symbol<decltype(cuModuleGetFunction)>("cuModuleGetFunction");
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  if (load == nullptr || load(&module, kNoWork) != CUDA_SUCCESS) return nullptr;
  return find(&kernel, module, "no_work") == CUDA_SUCCESS ? kernel : nullptr;
}

ffi::Error* failure(const ffi::Call& call) {
  ffi::CreateError error{sizeof error, nullptr, "the kernel did not start", ffi::Code::internal};
  return call.api->create_error(&error);
}

bool answers_metadata(const ffi::Call& call) {
  if (call.extensions == nullptr) return false;
  ffi::Metadata& metadata = *reinterpret_cast<ffi::MetadataExtension*>(call.extensions)->metadata;
  metadata.version.major = ffi::kMajor;
  metadata.version.minor = ffi::kMinor;
  metadata.traits = ffi::kCommandBuffers;
  return true;
}

}  // namespace

#define BENCH_API extern "C" __attribute__((visibility("default")))

BENCH_API void* bench_xla_nothing(void* frame) {
  answers_metadata(*static_cast<const ffi::Call*>(frame));
  return nullptr;
}

BENCH_API void* bench_xla_kernel(void* frame) {
  const auto& call = *static_cast<const ffi::Call*>(frame);
  if (answers_metadata(call)) return nullptr;
  static const CUfunction kernel = no_work();
  static const auto launch = symbol<decltype(cuLaunchKernel)>("cuLaunchKernel");
  ffi::GetStream stream{sizeof stream, nullptr, call.context, nullptr};
  if (ffi::Error* const error = call.api->get_stream(&stream)) return error;
  const bool started = kernel != nullptr && launch != nullptr &&
                       launch(kernel, 1, 1, 1, 128, 1, 1, 0, static_cast<CUstream>(stream.stream),
                              nullptr, nullptr) == CUDA_SUCCESS;
  return started ? nullptr : failure(call);
}
