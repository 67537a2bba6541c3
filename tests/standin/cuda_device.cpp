// Devices, contexts and the control interface.
#include <cstring>

#include "tests/standin/cuda_state.h"

namespace attn::standin {
namespace {

std::atomic<int> device_count{2};
thread_local int thread_device = -1;

void set_devices(int count, const int* sms) {
  device_count = count;
  for (int i = 0; i < count; ++i) devices()[static_cast<std::size_t>(i)].sm = sms[i];
}

void reset() {
  const int sms[] = {90, 90};
  set_devices(2, sms);
  set_memory_limit(std::int64_t{1} << 30);
  forget_declared_memory();
}

std::int64_t live_contexts() {
  std::int64_t sum = 0;
  for (const Device& device : devices()) sum += device.retained.load(std::memory_order_relaxed);
  return sum;
}

std::int64_t live(const char* what) {
  const struct {
    const char* name;
    std::int64_t count;
  } all[] = {{"context", live_contexts()},        {"memory", live_memory()},
             {"stream", streams().size()},        {"event", events().size()},
             {"module", modules().size()},        {"graph", graphs().size()},
             {"graph exec", graph_execs().size()}};
  if (what != nullptr && std::strcmp(what, "bytes") == 0) return live_bytes();
  std::int64_t sum = 0;
  for (const auto& [name, count] : all) {
    if (what == nullptr || std::strcmp(what, name) == 0) sum += count;
  }
  return sum;
}

Device* device_of(CUdevice ordinal) {
  if (ordinal < 0 || ordinal >= device_count) return nullptr;
  return &devices()[static_cast<std::size_t>(ordinal)];
}

bool is_alive(int ordinal) {
  return ordinal >= 0 && devices()[static_cast<std::size_t>(ordinal)].retained.load() > 0;
}

int on_device(int ordinal) {
  const auto here = [ordinal](const auto& object) { return object.device == ordinal; };
  return static_cast<int>(memory_of(ordinal) + streams().count_if(here) + events().count_if(here) +
                          modules().count_if(here));
}

int enqueue_call(void* stream, const char* what, void (*work)(void*), void (*drop)(void*),
                 void* data) {
  const std::shared_ptr<void> owned(data, drop);
  return enqueue(static_cast<CUstream>(stream), {what, [work, owned] { work(owned.get()); }});
}

int stream_device(void* stream) {
  if (stream == nullptr) return current_device();
  const Stream* found = streams().find(stream);
  return found == nullptr ? -1 : found->device;
}

}  // namespace

std::array<Device, kMostDevices>& devices() {
  static std::array<Device, kMostDevices> all;
  return all;
}

int ordinal_of(const void* context) {
  for (int i = 0; i < kMostDevices; ++i) {
    if (context == &devices()[static_cast<std::size_t>(i)]) return i;
  }
  return -1;
}

int current_device() { return is_alive(thread_device) ? thread_device : -1; }

CUresult check_context() {
  if (thread_device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  return is_alive(thread_device) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace attn::standin

using namespace attn::standin;

ATTN_STANDIN_EXPORT const StandinCuda* standin_cuda() {
  static const StandinCuda table = {
      make_control(&reset, &live),
      &set_devices,
      &set_memory_limit,
      &declare_memory,
      [](const void* address, StandinMemory* memory) {
        return describe_memory(address, memory) ? 1 : 0;
      },
      &current_device,
      [](int device) { return devices()[static_cast<std::size_t>(device)].sm.load(); },
      &stream_device,
      [] { return refuses_waits() ? 1 : 0; },
      &enqueue_call};
  return &table;
}

ATTN_STANDIN_EXPORT CUresult cuInit(unsigned int) {
  ATTN_STANDIN_CUDA(cuInit, checked)
  return CUDA_SUCCESS;
}

// NVRTC calls this if there is a driver.
ATTN_STANDIN_EXPORT CUresult cuGetExportTable(const void** table, const CUuuid*) {
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

ATTN_STANDIN_EXPORT CUresult cuGetErrorName(CUresult error, const char** text) {
  switch (error) {
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_ERROR_INVALID_CONTEXT: *text = "CUDA_ERROR_INVALID_CONTEXT"; break;
    case CUDA_ERROR_LAUNCH_FAILED: *text = "CUDA_ERROR_LAUNCH_FAILED"; break;
    case CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE:
      *text = "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE";
      break;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
      *text = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
      break;
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
      *text = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
      break;
    default: *text = nullptr; return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "scripted error";
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuDeviceGetCount(int* count) {
  ATTN_STANDIN_CUDA(cuDeviceGetCount, checked)
  *count = device_count;
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  ATTN_STANDIN_CUDA(cuDeviceGet, checked)
  if (device_of(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  ATTN_STANDIN_CUDA(cuDeviceGetName, checked)
  if (device_of(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  copy_text("stand-in " + std::to_string(device), name, static_cast<std::size_t>(size));
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which,
                                                  CUdevice device) {
  ATTN_STANDIN_CUDA(cuDeviceGetAttribute, checked)
  const Device* found = device_of(device);
  if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = found->sm / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = found->sm % 10; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 1 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *value = 1; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  ATTN_STANDIN_CUDA(cuDevicePrimaryCtxRetain, checked)
  Device* found = device_of(device);
  if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  ++found->retained;
  *context = reinterpret_cast<CUcontext>(found);
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  ATTN_STANDIN_CUDA(cuDevicePrimaryCtxRelease, ignored)
  Device* found = device_of(device);
  if (found == nullptr || found->retained <= 0) {
    violate("cuDevicePrimaryCtxRelease", "a context that is not retained");
    return CUDA_ERROR_INVALID_DEVICE;
  }
  if (--found->retained == 0 && on_device(device) > 0) {
    violate("cuDevicePrimaryCtxRelease", "the last release leaves objects in the context");
  }
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  ATTN_STANDIN_CUDA(cuCtxSetCurrent, checked)
  const int ordinal = ordinal_of(context);
  if (context != nullptr && !is_alive(ordinal)) return CUDA_ERROR_INVALID_CONTEXT;
  thread_device = ordinal;
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  ATTN_STANDIN_CUDA(cuCtxGetCurrent, checked)
  *context = thread_device < 0
                 ? nullptr
                 : reinterpret_cast<CUcontext>(&devices()[static_cast<std::size_t>(thread_device)]);
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  ATTN_STANDIN_CUDA(cuCtxGetDevice, checked)
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  *device = thread_device;
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuCtxSynchronize() {
  ATTN_STANDIN_CUDA(cuCtxSynchronize, checked)
  if (const CUresult result = check_no_capture(); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  return check_device_wait();
}
