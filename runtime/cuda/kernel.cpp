#include "runtime/cuda/kernel.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "runtime/cuda/capture.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/failure.h"

namespace attn::cuda {

class ModuleHandle {
 public:
  explicit ModuleHandle(std::shared_ptr<const Context> of) : context(std::move(of)) {}
  ModuleHandle(const ModuleHandle&) = delete;
  ModuleHandle& operator=(const ModuleHandle&) = delete;
  ~ModuleHandle() {
    if (module == nullptr) return;
    const RelaxedCapture relaxed(*context);
    Scope scope;
    if (scope.enter(*context).ok()) context->driver().module_unload(module);
  }

  std::shared_ptr<const Context> context;
  CUmodule module = nullptr;
};

Result<Module> Module::load(const Device& device, std::string_view image) {
  auto handle = std::make_shared<ModuleHandle>(device.context());
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(device));
  const RelaxedCapture relaxed(device);
  const std::string copy(image);  // NUL-terminated, in case the driver takes it for PTX
  ATTN_RETURN_IF_ERROR(handle->context->check(
      handle->context->driver().module_load_data(&handle->module, copy.data()), "loading kernels"));
  return Module(std::move(handle));
}

Result<Kernel> Module::kernel(const char* name) const {
  const Context& context = *handle_->context;
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(context));
  CUfunction function = nullptr;
  ATTN_RETURN_IF_ERROR(
      context.check(context.driver().module_get_function(&function, handle_->module, name),
                    fmt::format("finding the kernel {}", name)));
  return Kernel(handle_, function);
}

Result<std::vector<std::size_t>> Kernel::parameter_sizes() const {
  const Context& context = *module_->context;
  if (context.driver().function_get_param_info == nullptr) {
    return Error{ErrorCode::cuda,
                 "the CUDA driver is too old to report kernel parameters",
                 {"they are needed to check a plan's kernels against its manifest; drivers "
                  "of CUDA 12.4 (550) and newer have cuFuncGetParamInfo"},
                 to_payload({FailureKind::no_driver, 0})};
  }
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(context));
  std::vector<std::size_t> sizes;
  for (;;) {
    std::size_t offset = 0, size = 0;
    const CUresult result = context.driver().function_get_param_info(
        static_cast<CUfunction>(function_), sizes.size(), &offset, &size);
    if (result == CUDA_ERROR_INVALID_VALUE) return sizes;  // past the last parameter
    ATTN_RETURN_IF_ERROR(context.check(result, "querying a kernel's parameters"));
    sizes.push_back(size);
  }
}

Status Kernel::allow_shared_bytes(std::int64_t bytes) {
  if (bytes == 0) return {};
  const Context& context = *module_->context;
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(context));
  return context.check(
      context.driver().function_set_attribute(static_cast<CUfunction>(function_),
                                              CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                              static_cast<int>(bytes)),
      fmt::format("allowing a kernel {} bytes of shared memory", bytes));
}

Status Kernel::launch(void* stream, const LaunchShape& shape, void* const* arguments) const {
  const auto number = [](std::int64_t value) { return static_cast<unsigned>(value); };
  std::array<CUlaunchAttribute, 2> attributes{};
  unsigned count = 0;
  if (shape.cluster[0] * shape.cluster[1] * shape.cluster[2] > 1) {
    CUlaunchAttribute& cluster = attributes[count++];
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = {number(shape.cluster[0]), number(shape.cluster[1]),
                                number(shape.cluster[2])};
  }
  if (shape.overlaps) {
    CUlaunchAttribute& overlap = attributes[count++];
    overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    overlap.value.programmaticStreamSerializationAllowed = 1;
  }
  CUlaunchConfig config{};
  config.gridDimX = number(shape.grid[0]);
  config.gridDimY = number(shape.grid[1]);
  config.gridDimZ = number(shape.grid[2]);
  config.blockDimX = number(shape.block[0]);
  config.blockDimY = number(shape.block[1]);
  config.blockDimZ = number(shape.block[2]);
  config.sharedMemBytes = number(shape.shared_bytes);
  config.hStream = static_cast<CUstream>(stream);
  config.attrs = attributes.data();
  config.numAttrs = count;
  const Context& context = *module_->context;
  return context.check(context.driver().launch_kernel(&config, static_cast<CUfunction>(function_),
                                                      const_cast<void**>(arguments), nullptr),
                       "launching a kernel");
}

}  // namespace attn::cuda
