// Modules and kernels (work.h describes images). Kernels of real images (cubins and PTX) do
// nothing: programs with them can run, but results cannot be compared.
#include <cstring>
#include <string_view>

#include "tests/standin/cuda_state.h"

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
    const bool scalar = operand.role == Role::scalar;
    sizes.push_back(scalar ? static_cast<std::size_t>(operand.bytes) : sizeof(void*));
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
    violate("cuLaunchKernel", "an argument that is not device memory of the required size");
  return whole;
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

ATTN_STANDIN_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int, unsigned int,
                                            unsigned int, unsigned int, unsigned int, unsigned int,
                                            unsigned int, CUstream stream, void** arguments,
                                            void**) {
  ATTN_STANDIN_CUDA(cuLaunchKernel, checked)
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  const Kernel* kernel = kernels().find(function);
  if (kernel == nullptr) {
    violate("cuLaunchKernel", "no such kernel");
    return CUDA_ERROR_INVALID_HANDLE;
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
  return enqueue(stream, {kernel->name, [launch] { launch->run(); }});
}
