#include "runtime/cuda/kernel.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "runtime/cuda/context.h"
#include "runtime/cuda/failure.h"

namespace attn::cuda {
namespace {

constexpr std::int64_t kBlock = 256;

}  // namespace

Result<Kernel> Kernel::load(const Device& device, std::string_view image, const char* name) {
  Kernel kernel;
  kernel.context_ = device.context();
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(*kernel.context_));
  const Driver& driver = kernel.context_->driver();
  const std::string copy(image);  // NUL-terminated, in case the driver takes it for PTX
  CUmodule module = nullptr;
  ATTN_RETURN_IF_ERROR(kernel.context_->check(driver.module_load_data(&module, copy.data()),
                                              fmt::format("loading the kernel {}", name)));
  kernel.module_ = module;
  CUfunction function = nullptr;
  ATTN_RETURN_IF_ERROR(kernel.context_->check(driver.module_get_function(&function, module, name),
                                              fmt::format("finding the kernel {}", name)));
  kernel.function_ = function;
  return kernel;
}

Kernel::Kernel(Kernel&& other) noexcept
    : context_(std::move(other.context_)),
      module_(std::exchange(other.module_, nullptr)),
      function_(std::exchange(other.function_, nullptr)) {}

Kernel& Kernel::operator=(Kernel&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(module_, other.module_);
  std::swap(function_, other.function_);
  return *this;
}

Kernel::~Kernel() {
  if (module_ == nullptr) return;
  Scope scope;
  if (!scope.enter(*context_).ok()) return;
  context_->driver().module_unload(static_cast<CUmodule>(module_));
}

Result<std::vector<std::size_t>> Kernel::parameter_sizes() const {
  const Driver& driver = context_->driver();
  if (driver.function_get_param_info == nullptr) {
    return Error{ErrorCode::cuda,
                 "the CUDA driver is too old to report kernel parameters",
                 {"they are needed to check a plan's kernels against its manifest; drivers "
                  "of CUDA 12.4 (550) and newer have cuFuncGetParamInfo"},
                 to_payload({FailureKind::no_driver, 0})};
  }
  Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(*context_));
  std::vector<std::size_t> sizes;
  for (;;) {
    std::size_t offset = 0, size = 0;
    const CUresult result = driver.function_get_param_info(static_cast<CUfunction>(function_),
                                                           sizes.size(), &offset, &size);
    if (result == CUDA_ERROR_INVALID_VALUE) return sizes;  // past the last parameter
    ATTN_RETURN_IF_ERROR(context_->check(result, "querying a kernel's parameters"));
    sizes.push_back(size);
  }
}

Status Kernel::launch(void* stream, std::int64_t threads, void* const* arguments) const {
  if (threads == 0) return {};
  const auto blocks = static_cast<unsigned>((threads + kBlock - 1) / kBlock);
  return context_->check(context_->driver().launch_kernel(
                             static_cast<CUfunction>(function_), blocks, 1, 1, kBlock, 1, 1, 0,
                             static_cast<CUstream>(stream), const_cast<void**>(arguments), nullptr),
                         "launching a kernel");
}

}  // namespace attn::cuda
