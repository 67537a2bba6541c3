// Modules and kernels (work.h describes images). Kernels of real images (cubins and PTX) do
// nothing: programs with them can run, but results cannot be compared.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "tests/standin/cuda_state.h"
#include "tests/standin/own_kernels.h"

namespace attn::standin {
namespace {

// Copied arguments of a launch: addresses, and the values of scalars.
struct Launch {
  Work work;
  std::vector<Value> values;

  void run() {
    std::vector<void*> places;
    for (std::size_t i = 0; i < values.size(); ++i) {
      void* address = nullptr;
      std::memcpy(&address, values[i].data(), sizeof(address));
      places.push_back(work.operands[i].role == Role::scalar ? values[i].data() : address);
    }
    standin::run(work, places);
  }
};

std::optional<Module> parse_image(std::string_view image) {
  if (is_cubin(image)) {
    return Module{current_device(), true, {}, parameters_of_cubin(image.data()), {}};
  }
  if (image.find(".entry") != std::string_view::npos) {
    return Module{current_device(), true, {}, {}, {}};
  }
  std::optional<Kernels> parsed = parse_kernels(image);
  if (!parsed) return std::nullopt;
  return Module{current_device(), false, std::move(*parsed), {}, {}};
}

std::vector<std::size_t> parameters_of(const Module& module, const std::string& name) {
  if (module.is_real) {
    const auto found = module.parameters.find(name);
    return found == module.parameters.end() ? std::vector<std::size_t>() : found->second;
  }
  std::vector<std::size_t> sizes;
  for (const Operand& operand : module.works.at(name).operands) {
    std::size_t size = sizeof(void*);
    if (operand.role == Role::scalar) size = static_cast<std::size_t>(operand.bytes);
    if (operand.role == Role::mapped) size = kMapBytes;
    sizes.push_back(size);
  }
  return sizes;
}

// Checks that an operand is in device memory.
bool check_address(const Operand& operand, const Value& value) {
  void* address = nullptr;
  std::memcpy(&address, value.data(), sizeof(address));
  StandinMemory found{};
  const bool whole =
      describe_memory(address, &found) && static_cast<std::byte*>(address) + operand.bytes <=
                                              static_cast<std::byte*>(found.start) + found.bytes;
  if (!whole)
    violate("cuLaunchKernelEx", "an argument that is not device memory of the required size");
  return whole;
}

// The arguments of a kernel, copied.
Arguments arguments_of(const Kernel& kernel, void** arguments) {
  Arguments copied;
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(arguments[i]);
    copied.emplace_back(from, from + kernel.parameters[i]);
  }
  return copied;
}

// Whether it may begin before the launch before it has ended.
bool overlaps(const CUlaunchConfig& config) {
  return std::any_of(config.attrs, config.attrs + config.numAttrs, [](const auto& attribute) {
    return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
           attribute.value.programmaticStreamSerializationAllowed != 0;
  });
}

// Whether a launch is within the limits of the device and of the kernel.
bool fits(const CUlaunchConfig& config, const Kernel& kernel) {
  constexpr unsigned kMostThreads = 1024;
  const bool some = config.gridDimX > 0 && config.gridDimY > 0 && config.gridDimZ > 0 &&
                    config.blockDimX > 0 && config.blockDimY > 0 && config.blockDimZ > 0;
  return some && config.blockDimX * config.blockDimY * config.blockDimZ <= kMostThreads &&
         config.sharedMemBytes <= kernel.shared_bytes;
}

}  // namespace

Registry<Module>& modules() {
  static auto& all = *new Registry<Module>(0x55);
  return all;
}
Registry<Kernel>& kernels() {
  static auto& all = *new Registry<Kernel>(0x56);
  return all;
}

}  // namespace attn::standin

using namespace attn::standin;

ATTN_STANDIN_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  ATTN_STANDIN_CUDA(cuModuleLoadData, checked)
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check_no_capture(); result != CUDA_SUCCESS) return result;
  std::optional<Module> parsed = parse_image(static_cast<const char*>(image));
  if (!parsed) return CUDA_ERROR_INVALID_IMAGE;
  auto made = std::make_unique<Module>(std::move(*parsed));
  *module = static_cast<CUmodule>(modules().add(std::move(made)));
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuModuleUnload(CUmodule module) {
  ATTN_STANDIN_CUDA(cuModuleUnload, ignored)
  const std::unique_ptr<Module> gone = modules().remove(module);
  if (gone == nullptr) {
    violate("cuModuleUnload", "no such module");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  for (void* kernel : gone->kernels) kernels().remove(kernel);
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module,
                                                 const char* name) {
  ATTN_STANDIN_CUDA(cuModuleGetFunction, checked)
  Module* found = modules().find(module);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (found->is_real) found->works.try_emplace(name);
  const auto work = found->works.find(name);
  if (work == found->works.end()) return CUDA_ERROR_NOT_FOUND;
  for (void* known : found->kernels) {
    if (kernels().find(known)->name != name) continue;
    *function = static_cast<CUfunction>(known);
    return CUDA_SUCCESS;
  }
  found->kernels.push_back(kernels().add(
      std::make_unique<Kernel>(Kernel{name, work->second, parameters_of(*found, name)})));
  *function = static_cast<CUfunction>(found->kernels.back());
  return CUDA_SUCCESS;
}

ATTN_STANDIN_EXPORT CUresult cuFuncGetParamInfo(CUfunction function, std::size_t index,
                                                std::size_t* offset, std::size_t* size) {
  ATTN_STANDIN_CUDA(cuFuncGetParamInfo, checked)
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  const Kernel* kernel = kernels().find(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (index >= kernel->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  for (std::size_t i = 0; i <= index; ++i) {
    *size = kernel->parameters[i];
    *offset = (*offset + *size - 1) / *size * *size;  // each aligned to its size
    if (i < index) *offset += *size;
  }
  return CUDA_SUCCESS;
}

// Checks the sizes of a launch; it has no cluster limits.
ATTN_STANDIN_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                                              void** arguments, void**) {
  ATTN_STANDIN_CUDA(cuLaunchKernelEx, checked)
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  const Kernel* kernel = kernels().find(function);
  if (kernel == nullptr) {
    violate("cuLaunchKernelEx", "no such kernel");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  log_work(config->hStream, kernel->name + (overlaps(*config) ? " overlapping" : ""));
  if (!fits(*config, *kernel)) return CUDA_ERROR_INVALID_VALUE;
  if (is_own_kernel(kernel->name)) {
    return enqueue(config->hStream,
                   {kernel->name, [name = kernel->name, copied = arguments_of(*kernel, arguments),
                                   blocks = config->gridDimX, threads = config->blockDimX] {
                      run_own_kernel(name, copied, blocks, threads);
                    }});
  }
  auto launch = std::make_shared<Launch>(Launch{kernel->work, {}});
  for (std::size_t i = 0; i < kernel->work.operands.size(); ++i) {
    const Operand& operand = kernel->work.operands[i];
    const bool scalar = operand.role == Role::scalar;
    Value value{};
    std::memcpy(value.data(), arguments[i],
                scalar ? static_cast<std::size_t>(operand.bytes) : sizeof(void*));
    if (!scalar && !check_address(operand, value)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    launch->values.push_back(value);
  }
  return enqueue(config->hStream, {kernel->name, [launch] { launch->run(); }});
}

ATTN_STANDIN_EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute,
                                                int value) {
  ATTN_STANDIN_CUDA(cuFuncSetAttribute, checked)
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  Kernel* kernel = kernels().find(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_NOT_SUPPORTED;
  kernel->shared_bytes = static_cast<unsigned>(value);
  return CUDA_SUCCESS;
}

// The map holds the address, and zeros.
ATTN_STANDIN_EXPORT CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* address, const cuuint64_t* dims,
    const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t*, CUtensorMapInterleave,
    CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  ATTN_STANDIN_CUDA(cuTensorMapEncodeTiled, checked)
  constexpr std::uintptr_t kAlignment = 16;
  bool fits = rank >= 1 && rank <= 5 && reinterpret_cast<std::uintptr_t>(address) % kAlignment == 0;
  for (cuuint32_t i = 0; fits && i < rank; ++i) {
    fits = dims[i] > 0 && box[i] > 0 && (i == 0 || strides[i - 1] % kAlignment == 0);
  }
  if (!fits) return CUDA_ERROR_INVALID_VALUE;
  std::memset(map, 0, sizeof(*map));
  std::memcpy(map, &address, sizeof(address));
  return CUDA_SUCCESS;
}
