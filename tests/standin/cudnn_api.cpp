// The entry points of cuDNN and the control interface.
#include <dlfcn.h>

#include <utility>

#include "tests/standin/cudnn_state.h"

namespace attn::standin {
namespace {

constexpr std::int64_t kVersion = 91900;
// A version without an NVRTC, since nothing is compiled.
constexpr std::size_t kCudartVersion = 99000;

std::atomic<std::int64_t> its_version{kVersion};
std::atomic<std::int64_t> engines{0};
thread_local std::string last_words;

void reset() {
  its_version = kVersion;
  engines = 0;
  reset_heuristics();
}

std::int64_t live(const char* what) {
  const bool all = what == nullptr;
  std::int64_t sum = 0;
  if (all || std::strcmp(what, "descriptor") == 0) sum += descriptors().size();
  if (all || std::strcmp(what, "handle") == 0) sum += handles().size();
  return sum;
}

cudnnStatus_t scripted(const Verdict& verdict) {
  say(verdict.words);
  return static_cast<cudnnStatus_t>(verdict.status);
}

const char* status_text(cudnnStatus_t status) {
  switch (status) {
#define ATTN_STATUS(name) \
  case CUDNN_STATUS_##name: return "CUDNN_STATUS_" #name;
    ATTN_STATUS(SUCCESS)
    ATTN_STATUS(NOT_INITIALIZED)
    ATTN_STATUS(SERIALIZATION_VERSION_MISMATCH)
    ATTN_STATUS(BAD_PARAM)
    ATTN_STATUS(NOT_SUPPORTED)
    ATTN_STATUS(NOT_SUPPORTED_GRAPH_PATTERN)
    ATTN_STATUS(NOT_SUPPORTED_SHAPE)
    ATTN_STATUS(NOT_SUPPORTED_ARCH_MISMATCH)
    ATTN_STATUS(NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING)
    ATTN_STATUS(NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT)
    ATTN_STATUS(INTERNAL_ERROR)
    ATTN_STATUS(INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
    ATTN_STATUS(INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    ATTN_STATUS(EXECUTION_FAILED)
#undef ATTN_STATUS
    default: return "CUDNN_STATUS_OF_THE_SCRIPT";
  }
}

// Marks a handle as in use by this thread; reports a violation if another thread uses it.
class Busy {
 public:
  Busy(const char* function, Handle& handle) : handle_(handle) {
    if (handle_.busy.exchange(true, std::memory_order_relaxed)) {
      violate(function, "a handle that another thread uses");
    }
  }
  ~Busy() { handle_.busy.store(false, std::memory_order_relaxed); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Handle& handle_;
};

int kind_of(cudnnBackendDescriptor_t raw) {
  const Descriptor* found = descriptors().find(raw);
  return found == nullptr ? STANDIN_ANY : static_cast<int>(found->type);
}

cudnnStatus_t finalize(Descriptor& descriptor) {
  switch (descriptor.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return finalize_tensor(descriptor);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return finalize_graph(descriptor);
    case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR: return finalize_device(descriptor);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: return finalize_heuristics(descriptor);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: return finalize_engine(descriptor);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: return finalize_config(descriptor);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return finalize_plan(descriptor);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: return check_pack(descriptor);
    default: return CUDNN_STATUS_SUCCESS;
  }
}

}  // namespace

std::int64_t version() { return its_version; }
std::int64_t engine_count() { return engines; }
void say(const std::string& words) { last_words = words; }
std::string take_last_words() { return std::exchange(last_words, ""); }

cudnnStatus_t fail(cudnnStatus_t status, const std::string& reason) {
  last_words = std::string("Warning: ") + status_text(status) + "; Reason: " + reason;
  return status;
}

cudnnStatus_t breach(const char* function, cudnnStatus_t status, const std::string& what) {
  violate(function, what);
  return fail(status, what);
}

const StandinCuda* driver() {
  static std::atomic<const StandinCuda*> found{nullptr};
  if (const StandinCuda* known = found.load(std::memory_order_relaxed)) return known;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  const auto table = reinterpret_cast<StandinCudaFunction>(dlsym(library, "standin_cuda"));
  if (table != nullptr) found.store(table(), std::memory_order_relaxed);
  return found.load(std::memory_order_relaxed);
}

Registry<Descriptor>& descriptors() {
  static auto& all = *new Registry<Descriptor>(0x61);
  return all;
}
Registry<Handle>& handles() {
  static auto& all = *new Registry<Handle>(0x62);
  return all;
}

}  // namespace attn::standin

using namespace attn::standin;

ATTN_STANDIN_EXPORT const StandinCudnn* standin_cudnn() {
  static const StandinCudnn table = [] {
    recorder().name_kinds(&kind_name);
    return StandinCudnn{make_control(&reset, &live),
                        [](std::int64_t version) { its_version = version; }, &set_offer,
                        [](std::int64_t count) { engines = count; }};
  }();
  return &table;
}

ATTN_STANDIN_EXPORT std::size_t cudnnGetVersion() { return static_cast<std::size_t>(version()); }
ATTN_STANDIN_EXPORT std::size_t cudnnGetCudartVersion() { return kCudartVersion; }
ATTN_STANDIN_EXPORT const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status_text(status);
}

ATTN_STANDIN_EXPORT void cudnnGetLastErrorString(char* message, std::size_t size) {
  copy_text(take_last_words(), message, size);
}

ATTN_STANDIN_EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  ATTN_STANDIN_CUDNN(cudnnCreate, checked, STANDIN_ANY)
  const StandinCuda* cuda = driver();
  if (cuda == nullptr || cuda->current_device() < 0) {
    return fail(CUDNN_STATUS_NOT_INITIALIZED, "no current context");
  }
  if (cuda->refuses_waits() != 0) violate("cudnnCreate", "while a stream captures");
  auto made = std::make_unique<Handle>();
  made->device = cuda->current_device();
  *handle = static_cast<cudnnHandle_t>(handles().add(std::move(made)));
  return CUDNN_STATUS_SUCCESS;
}

ATTN_STANDIN_EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  ATTN_STANDIN_CUDNN(cudnnDestroy, ignored, STANDIN_ANY)
  std::unique_ptr<Handle> gone = handles().remove(handle);
  if (gone == nullptr) return breach("cudnnDestroy", CUDNN_STATUS_BAD_PARAM, "no such handle");
  if (driver()->current_device() != gone->device) violate("cudnnDestroy", "without its context");
  const bool loaded = gone->plans.load() > 0, busy = gone->busy.load(std::memory_order_relaxed);
  if (loaded) violate("cudnnDestroy", "plans that were loaded with it are alive");
  if (busy) violate("cudnnDestroy", "a handle that another thread uses");
  if (loaded || busy) handles().bury(std::move(gone));
  return CUDNN_STATUS_SUCCESS;
}

ATTN_STANDIN_EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  ATTN_STANDIN_CUDNN(cudnnSetStream, checked, STANDIN_ANY)
  Handle* found = handles().find(handle);
  if (found == nullptr) return breach("cudnnSetStream", CUDNN_STATUS_BAD_PARAM, "no such handle");
  const Busy busy("cudnnSetStream", *found);
  if (driver()->device_of(stream) != found->device) {
    return fail(CUDNN_STATUS_BAD_PARAM, "the stream is invalid or belongs to another device");
  }
  found->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

ATTN_STANDIN_EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                               cudnnBackendDescriptor_t* raw) {
  ATTN_STANDIN_CUDNN(cudnnBackendCreateDescriptor, checked, type)
  if (kind_name(type).empty()) return fail(CUDNN_STATUS_NOT_SUPPORTED, "no such descriptor");
  *raw = descriptors().add(std::make_unique<Descriptor>(type));
  return CUDNN_STATUS_SUCCESS;
}

ATTN_STANDIN_EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t raw) {
  constexpr const char* kName = "cudnnBackendDestroyDescriptor";
  ATTN_STANDIN_CUDNN(cudnnBackendDestroyDescriptor, ignored, kind_of(raw))
  std::unique_ptr<Descriptor> gone = descriptors().remove(raw);
  if (gone == nullptr) return breach(kName, CUDNN_STATUS_BAD_PARAM, "no such descriptor");
  if (gone->handle != nullptr) {
    --gone->handle->plans;
    if (driver()->current_device() != gone->device) violate(kName, "a plan without its context");
  }
  if (gone->in_use.load(std::memory_order_relaxed) > 0) {
    violate(kName, kind_name(gone->type) + " that executes");
    descriptors().bury(std::move(gone));
  }
  return CUDNN_STATUS_SUCCESS;
}

ATTN_STANDIN_EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t raw) {
  constexpr const char* kName = "cudnnBackendFinalize";
  ATTN_STANDIN_CUDNN(cudnnBackendFinalize, checked, kind_of(raw))
  Descriptor* found = descriptors().find(raw);
  if (found == nullptr) return breach(kName, CUDNN_STATUS_BAD_PARAM, "no such descriptor");
  if (found->finalized) return breach(kName, CUDNN_STATUS_BAD_PARAM, "already finalized");
  const cudnnStatus_t status = finalize(*found);
  found->finalized = status == CUDNN_STATUS_SUCCESS;
  return status;
}

ATTN_STANDIN_EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t raw,
                                                           cudnnBackendAttributeName_t name,
                                                           cudnnBackendAttributeType_t type,
                                                           std::int64_t count,
                                                           const void* elements) {
  constexpr const char* kName = "cudnnBackendSetAttribute";
  ATTN_STANDIN_CUDNN(cudnnBackendSetAttribute, checked, kind_of(raw))
  Descriptor* found = descriptors().find(raw);
  const auto* attribute = find_attribute(name);
  if (found == nullptr) return breach(kName, CUDNN_STATUS_BAD_PARAM, "no such descriptor");
  if (found->finalized) return breach(kName, CUDNN_STATUS_BAD_PARAM, "after finalize");
  if (attribute == nullptr || !belongs(*attribute, found->type)) {
    return breach(kName, CUDNN_STATUS_BAD_PARAM, kind_name(found->type) + " has no such attribute");
  }
  if (type != attribute->type || count < attribute->min_count || count > attribute->max_count) {
    return breach(kName, CUDNN_STATUS_BAD_PARAM,
                  std::string("wrong type or number of elements for ") + attribute->text);
  }
  const auto* bytes = static_cast<const std::byte*>(elements);
  const std::size_t size = static_cast<std::size_t>(count) * size_of(type);
  found->set[name] = {count, std::vector<std::byte>(bytes, bytes + size)};
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) return CUDNN_STATUS_SUCCESS;
  for (std::int64_t i = 0; i < count; ++i) {
    const Descriptor* other = descriptors().find(found->set[name].at<void*>(i));
    if (other == nullptr || !other->finalized) {
      return breach(kName, CUDNN_STATUS_BAD_PARAM,
                    std::string("a descriptor that is not finalized, for ") + attribute->text);
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

ATTN_STANDIN_EXPORT cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t raw,
                                                           cudnnBackendAttributeName_t name,
                                                           cudnnBackendAttributeType_t type,
                                                           std::int64_t requested,
                                                           std::int64_t* count, void* elements) {
  constexpr const char* kName = "cudnnBackendGetAttribute";
  ATTN_STANDIN_CUDNN(cudnnBackendGetAttribute, checked, kind_of(raw))
  const Descriptor* found = descriptors().find(raw);
  const auto* attribute = find_attribute(name);
  if (found == nullptr) return breach(kName, CUDNN_STATUS_BAD_PARAM, "no such descriptor");
  if (!found->finalized) return breach(kName, CUDNN_STATUS_BAD_PARAM, "before finalize");
  if (attribute == nullptr || !belongs(*attribute, found->type) || type != attribute->type) {
    return breach(kName, CUDNN_STATUS_BAD_PARAM, kind_name(found->type) + " has no such attribute");
  }
  return read(*found, *attribute, requested, count, elements);
}

ATTN_STANDIN_EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle,
                                                      cudnnBackendDescriptor_t raw_plan,
                                                      cudnnBackendDescriptor_t raw_pack) {
  constexpr const char* kName = "cudnnBackendExecute";
  Handle* found = handles().find(handle);
  Descriptor* plan = descriptors().find(raw_plan);
  Descriptor* pack = descriptors().find(raw_pack);
  if (found == nullptr) return breach(kName, CUDNN_STATUS_BAD_PARAM, "no such handle");
  if (plan == nullptr || pack == nullptr || !plan->finalized || !pack->finalized) {
    return breach(kName, CUDNN_STATUS_BAD_PARAM,
                  "descriptors that are not finalized or were destroyed");
  }
  const Busy busy(kName, *found);
  plan->in_use.fetch_add(1, std::memory_order_relaxed);
  pack->in_use.fetch_add(1, std::memory_order_relaxed);
  const cudnnStatus_t status = execute(*found, *plan, *pack);
  pack->in_use.fetch_sub(1, std::memory_order_relaxed);
  plan->in_use.fetch_sub(1, std::memory_order_relaxed);
  return status;
}
