// Device memory: host memory between guards.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <shared_mutex>

#include "tests/standin/cuda_state.h"

namespace attn::standin {
namespace {

constexpr std::size_t kGuard = 256;  // bytes before an allocation, and at least as many after it
constexpr int kGuardByte = 0xa5, kFresh = 0xcd, kFreed = 0xdd;

struct Range {
  std::size_t bytes = 0;
  int device = 0;
  int kind = STANDIN_DEVICE;
  bool graph_owned = false;
};

struct Memory {
  mutable std::shared_mutex mutex;
  std::map<std::uintptr_t, Range> ranges;    // keyed by the first byte
  std::map<std::uintptr_t, Range> declared;  // host memory declared by tests
  std::atomic<std::int64_t> limit{std::int64_t{1} << 30};
};

Memory& memory() {
  static Memory& all = *new Memory;
  return all;
}

std::size_t room_for(std::size_t bytes) {
  return kGuard + (bytes + 2 * kGuard - 1) / kGuard * kGuard;
}

std::byte* pointer(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

bool is_guard(const std::byte* first, const std::byte* last) {
  while (first != last && *first == std::byte{kGuardByte}) ++first;
  return first == last;
}

// The range that holds the address, or end.
auto find(const std::map<std::uintptr_t, Range>& ranges, std::uintptr_t address) {
  auto next = ranges.upper_bound(address);
  if (next == ranges.begin()) return ranges.end();
  --next;
  return address - next->first < next->second.bytes ? next : ranges.end();
}

bool describe_in(const std::map<std::uintptr_t, Range>& ranges, const void* address,
                 StandinMemory* found) {
  const auto range = find(ranges, reinterpret_cast<std::uintptr_t>(address));
  if (range == ranges.end()) return false;
  *found = {reinterpret_cast<void*>(range->first), range->second.bytes, range->second.device,
            range->second.kind};
  return true;
}

template <typename Predicate>
std::int64_t sum_of(const Predicate& value_of) {
  const std::shared_lock lock(memory().mutex);
  std::int64_t sum = 0;
  for (const auto& [address, range] : memory().ranges) sum += value_of(range);
  return sum;
}

// Checks that all bytes are in one allocation.
CUresult check_range(const char* function, CUdeviceptr address, std::size_t bytes) {
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  StandinMemory found{};
  if (describe_memory(pointer(address), &found) &&
      pointer(address) + bytes <= static_cast<std::byte*>(found.start) + found.bytes) {
    return CUDA_SUCCESS;
  }
  violate(function, "bytes outside an allocation");
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult allocate(CUdeviceptr* address, std::size_t bytes) {
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  *address = allocate_memory(current_device(), bytes, false);
  return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult release(const char* function, CUdeviceptr address, int kind = STANDIN_DEVICE) {
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  StandinMemory found{};
  const bool fits = describe_memory(pointer(address), &found) && found.kind == kind;
  if (fits && free_memory(address)) return CUDA_SUCCESS;
  violate(function, "memory that is not allocated");
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUdeviceptr allocate_memory(int device, std::size_t bytes, bool graph_owned, int kind) {
  auto& used = devices()[static_cast<std::size_t>(device)].bytes_used;
  const auto more = static_cast<std::int64_t>(bytes);
  if (used.fetch_add(more) + more > memory().limit) {
    used -= more;
    return 0;
  }
  auto* base = static_cast<std::byte*>(std::aligned_alloc(kGuard, room_for(bytes)));
  std::memset(base, kGuardByte, room_for(bytes));
  std::memset(base + kGuard, kFresh, bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(base + kGuard);
  const std::unique_lock lock(memory().mutex);
  memory().ranges[address] = {bytes, device, kind, graph_owned};
  return address;
}

bool free_memory(CUdeviceptr address) {
  std::unique_lock lock(memory().mutex);
  const auto found = memory().ranges.find(address);
  if (found == memory().ranges.end()) return false;
  const Range range = found->second;
  memory().ranges.erase(found);
  lock.unlock();
  std::byte* first = pointer(address);
  std::byte* base = first - kGuard;
  if (!is_guard(base, first) || !is_guard(first + range.bytes, base + room_for(range.bytes))) {
    violate("device memory", "written before or after an allocation");
  }
  std::memset(first, kFreed, range.bytes);
  std::free(base);
  devices()[static_cast<std::size_t>(range.device)].bytes_used -=
      static_cast<std::int64_t>(range.bytes);
  return true;
}

GraphMemory::~GraphMemory() { free_memory(address); }

bool describe_memory(const void* address, StandinMemory* found) {
  const std::shared_lock lock(memory().mutex);
  return describe_in(memory().ranges, address, found) ||
         describe_in(memory().declared, address, found);
}

std::int64_t live_memory() {
  return sum_of([](const Range& range) { return range.graph_owned ? 0 : 1; });
}

std::int64_t live_bytes() {
  return sum_of([](const Range& range) { return static_cast<std::int64_t>(range.bytes); });
}

std::int64_t memory_of(int device) {
  return sum_of([device](const Range& range) { return range.device == device ? 1 : 0; });
}

void set_memory_limit(std::int64_t bytes) { memory().limit = bytes; }

void forget_declared_memory() {
  const std::unique_lock lock(memory().mutex);
  memory().declared.clear();
}

void declare_memory(void* address, std::size_t bytes, int kind) {
  const std::unique_lock lock(memory().mutex);
  const auto key = reinterpret_cast<std::uintptr_t>(address);
  memory().declared.erase(key);
  if (kind != STANDIN_FORGOTTEN) memory().declared[key] = {bytes, 0, kind, false};
}

}  // namespace attn::standin

using namespace attn::standin;

ATTN_STANDIN_EXPORT CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  ATTN_STANDIN_CUDA(cuMemAlloc, checked)
  if (const CUresult result = check_no_capture(); result != CUDA_SUCCESS) return result;
  return allocate(address, bytes);
}

ATTN_STANDIN_EXPORT CUresult cuMemFree(CUdeviceptr address) {
  ATTN_STANDIN_CUDA(cuMemFree, ignored)
  if (address == 0) return CUDA_SUCCESS;
  if (const CUresult result = check_no_capture(); result != CUDA_SUCCESS) return result;
  return release("cuMemFree", address);
}

// The device addresses it as the host does.
ATTN_STANDIN_EXPORT CUresult cuMemHostAlloc(void** address, std::size_t bytes, unsigned int) {
  ATTN_STANDIN_CUDA(cuMemHostAlloc, checked)
  if (const CUresult result = check_no_capture(); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  const CUdeviceptr made = allocate_memory(current_device(), bytes, false, STANDIN_PINNED);
  *address = pointer(made);
  return made == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr* address, void* host,
                                                       unsigned int) {
  ATTN_STANDIN_CUDA(cuMemHostGetDevicePointer, checked)
  StandinMemory found{};
  if (!describe_memory(host, &found) || found.kind != STANDIN_PINNED) {
    violate("cuMemHostGetDevicePointer", "memory that is not pinned");
    return CUDA_ERROR_INVALID_VALUE;
  }
  *address = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuMemFreeHost(void* address) {
  ATTN_STANDIN_CUDA(cuMemFreeHost, ignored)
  if (const CUresult result = check_no_capture(); result != CUDA_SUCCESS) return result;
  return release("cuMemFreeHost", reinterpret_cast<CUdeviceptr>(address), STANDIN_PINNED);
}

ATTN_STANDIN_EXPORT CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  ATTN_STANDIN_CUDA(cuMemGetInfo, checked)
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  const Device& device = devices()[static_cast<std::size_t>(current_device())];
  *total = static_cast<std::size_t>(memory().limit);
  *free = *total - static_cast<std::size_t>(device.bytes_used);
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* address, std::size_t bytes,
                                             CUstream stream) {
  ATTN_STANDIN_CUDA(cuMemAllocAsync, checked)
  Graph* graph = captured_by(stream);
  if (graph == nullptr) return allocate(address, bytes);
  *address = allocate_memory(current_device(), bytes, true);
  if (*address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  graph->memory.push_back(std::make_shared<GraphMemory>(*address));
  graph->nodes.push_back({"allocate", [] {}});
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  ATTN_STANDIN_CUDA(cuMemFreeAsync, ignored)
  Graph* graph = captured_by(stream);
  if (graph == nullptr) return release("cuMemFreeAsync", address);
  graph->nodes.push_back({"free", [] {}});
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes,
                                               CUstream stream) {
  ATTN_STANDIN_CUDA(cuMemcpyHtoDAsync, checked)
  const CUresult result = check_range("cuMemcpyHtoDAsync", to, bytes);
  if (result != CUDA_SUCCESS) return result;
  return enqueue(stream, {"copy to the device", [=] { std::memcpy(pointer(to), from, bytes); }});
}

ATTN_STANDIN_EXPORT CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes,
                                               CUstream stream) {
  ATTN_STANDIN_CUDA(cuMemcpyDtoHAsync, checked)
  const CUresult result = check_range("cuMemcpyDtoHAsync", from, bytes);
  if (result != CUDA_SUCCESS) return result;
  return enqueue(stream, {"copy to the host", [=] { std::memcpy(to, pointer(from), bytes); }});
}

// Supports only copies between device memory.
ATTN_STANDIN_EXPORT CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* copy, CUstream stream) {
  ATTN_STANDIN_CUDA(cuMemcpy2DAsync, checked)
  const CUDA_MEMCPY2D rows = *copy;
  if (rows.Height == 0 || rows.srcPitch < rows.WidthInBytes || rows.dstPitch < rows.WidthInBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult from = check_range("cuMemcpy2DAsync", rows.srcDevice,
                                    (rows.Height - 1) * rows.srcPitch + rows.WidthInBytes);
  if (from != CUDA_SUCCESS) return from;
  const CUresult to = check_range("cuMemcpy2DAsync", rows.dstDevice,
                                  (rows.Height - 1) * rows.dstPitch + rows.WidthInBytes);
  if (to != CUDA_SUCCESS) return to;
  return enqueue(stream, {"copy rows", [rows] {
                            for (std::size_t i = 0; i < rows.Height; ++i) {
                              std::memcpy(pointer(rows.dstDevice) + i * rows.dstPitch,
                                          pointer(rows.srcDevice) + i * rows.srcPitch,
                                          rows.WidthInBytes);
                            }
                          }});
}

ATTN_STANDIN_EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, std::size_t bytes,
                                             CUstream stream) {
  ATTN_STANDIN_CUDA(cuMemsetD8Async, checked)
  const CUresult result = check_range("cuMemsetD8Async", to, bytes);
  if (result != CUDA_SUCCESS) return result;
  return enqueue(stream, {"memset", [=] { std::memset(pointer(to), byte, bytes); }});
}

ATTN_STANDIN_EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int word, std::size_t count,
                                              CUstream stream) {
  ATTN_STANDIN_CUDA(cuMemsetD32Async, checked)
  const CUresult result = check_range("cuMemsetD32Async", to, count * sizeof(word));
  if (result != CUDA_SUCCESS) return result;
  return enqueue(stream, {"memset", [=] {
                            auto* const words = reinterpret_cast<unsigned int*>(pointer(to));
                            std::fill_n(words, count, word);
                          }});
}

// Unknown addresses give zeros, as in the driver.
ATTN_STANDIN_EXPORT CUresult cuPointerGetAttributes(unsigned int count,
                                                    CUpointer_attribute* attributes, void** data,
                                                    CUdeviceptr address) {
  ATTN_STANDIN_CUDA(cuPointerGetAttributes, checked)
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  StandinMemory found{};
  const bool known = describe_memory(pointer(address), &found);
  const bool pinned = known && found.kind == STANDIN_PINNED;
  for (unsigned int i = 0; i < count; ++i) {
    int& value = *static_cast<int*>(data[i]);
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(data[i]) = reinterpret_cast<CUdeviceptr>(found.start);
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<std::size_t*>(data[i]) = found.bytes;
        break;
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        value = !known ? 0 : pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        value = known && found.kind == STANDIN_MANAGED ? 1 : 0;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: value = known && !pinned ? found.device : 0; break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}
