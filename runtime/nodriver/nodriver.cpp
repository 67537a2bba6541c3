// A CUDA driver library without a device. cuDNN compiles kernels with NVRTC, but only if it finds a
// libcuda.so.1. This one answers "no device", so that compiling depends neither on a driver nor on
// the host's GPU. Freestanding: no C library, no startup code.
//
// Arguments are not declared, since the C calling convention lets the callee ignore them.

#define ATTN_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kNoDevice = 100;         // CUDA_ERROR_NO_DEVICE
constexpr int kDriverVersion = 13000;  // CUDA 13.0

int made_up_object = 0;

}  // namespace

#define ATTN_NO_DEVICE(name) \
  ATTN_EXPORT int name() { return kNoDevice; }
#define ATTN_MADE_UP_HANDLE(name)       \
  ATTN_EXPORT int name(void** handle) { \
    *handle = &made_up_object;          \
    return kSuccess;                    \
  }
#define ATTN_NOTHING_TO_DO(name) \
  ATTN_EXPORT int name() { return kSuccess; }
#include "runtime/nodriver/symbols.def"

ATTN_EXPORT int cuDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return kSuccess;
}

ATTN_EXPORT int cuDeviceGetCount(int* count) {
  *count = 0;
  return kSuccess;
}

ATTN_EXPORT int cuCtxGetCurrent(void** context) {
  *context = nullptr;
  return kSuccess;
}

ATTN_EXPORT int cuGetErrorName(int, const char** text) {
  *text = "CUDA_ERROR_NO_DEVICE";
  return kSuccess;
}

ATTN_EXPORT int cuGetErrorString(int, const char** text) {
  *text = "no CUDA-capable device (attnc compiles without one)";
  return kSuccess;
}
