#include "runtime/operations/kernels.h"

#include <utility>

#include "runtime/cuda/capture.h"
#include "runtime/operations/images.h"

namespace attn::operations {
namespace {

static_assert(sizeof(AppendParameters) <= 4096 && sizeof(MergeParameters) <= 4096 &&
                  sizeof(ControlParameters) <= 4096,
              "the arguments of a launch");

template <typename Parameters>
Status launch(const cuda::Device& device, const cuda::Kernel& kernel, const Parameters& parameters,
              std::int64_t blocks, void* stream) {
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(device));
  void* arguments[] = {const_cast<Parameters*>(&parameters)};
  return kernel.launch(stream, {{blocks, 1, 1}, {kThreads, 1, 1}}, arguments);
}

}  // namespace

Status Kernels::load() {
  ATTN_ASSIGN(const Image image, choose(images(), device_.sm()));
  cuda::Scope scope;
  ATTN_RETURN_IF_ERROR(scope.enter(device_));
  const cuda::RelaxedCapture relaxed(device_);  // the driver may load a kernel when it is found
  ATTN_ASSIGN(const cuda::Module module, cuda::Module::load(device_, image.bytes));
  ATTN_ASSIGN(cuda::Kernel append, module.kernel("attn_append_rows"));
  ATTN_ASSIGN(cuda::Kernel merge, module.kernel("attn_merge_results"));
  ATTN_ASSIGN(cuda::Kernel check, module.kernel("attn_check_control"));
  owned_ =
      std::make_unique<const Loaded>(Loaded{std::move(append), std::move(merge), std::move(check)});
  loaded_.store(owned_.get(), std::memory_order_release);
  return {};
}

Result<const Kernels::Loaded*> Kernels::loaded() {
  if (const Loaded* ready = loaded_.load(std::memory_order_acquire)) return ready;
  const std::lock_guard lock(mutex_);
  if (owned_ == nullptr) ATTN_RETURN_IF_ERROR(load());
  return owned_.get();
}

Status Kernels::append(const AppendParameters& parameters, std::int64_t blocks, void* stream) {
  ATTN_ASSIGN(const Loaded* const kernels, loaded());
  return launch(device_, kernels->append, parameters, blocks, stream);
}

Status Kernels::merge(const MergeParameters& parameters, std::int64_t blocks, void* stream) {
  ATTN_ASSIGN(const Loaded* const kernels, loaded());
  return launch(device_, kernels->merge, parameters, blocks, stream);
}

Status Kernels::check(const ControlParameters& parameters, void* stream) {
  ATTN_ASSIGN(const Loaded* const kernels, loaded());
  return launch(device_, kernels->check, parameters, parameters.blocks, stream);
}

}  // namespace attn::operations
