#include "runtime/execute/runtime.h"

#include <fmt/format.h>

#include <utility>

namespace attn::execute {
namespace {

constexpr int kMostLoads = 4;  // concurrent

Status check_handles(int most) {
  if (most >= 1 && most <= cudnn::Handles::kMost) return {};
  return Status(
      ErrorCode::invalid_argument,
      fmt::format("the number of handles must be 1 to {}, not {}", cudnn::Handles::kMost, most));
}

}  // namespace

Runtime::Cudnn::Cudnn(std::shared_ptr<const cudnn::Library> its_library, int most_handles)
    : library(std::move(its_library)),
      executing(library, most_handles),
      loading(library, kMostLoads) {}

Runtime::Runtime(cuda::Device device, const RuntimeOptions& options)
    : device_(std::move(device)),
      cudnn_folder_(options.cudnn_folder),
      most_handles_(options.most_handles),
      log_(options.log),
      allocator_(options.allocator),
      operations_(device_) {}

Result<std::shared_ptr<Runtime>> Runtime::open(const RuntimeOptions& options) {
  ATTN_RETURN_IF_ERROR(check_handles(options.most_handles));
  ATTN_ASSIGN(cuda::Device device, cuda::Device::open(options.device));
  std::shared_ptr<Runtime> runtime(new Runtime(std::move(device), options));
  runtime->log(log::Level::info, fmt::format("CUDA device {}: {} (sm_{})", options.device,
                                             runtime->device_.name(), runtime->device_.sm()));
  return runtime;
}

Result<Runtime::Cudnn*> Runtime::cudnn() {
  std::unique_lock lock(mutex_);
  if (cudnn_ != nullptr) return cudnn_.get();
  ATTN_ASSIGN(auto library, cudnn::Library::load(cudnn_folder_));
  cudnn_ = std::make_unique<Cudnn>(std::move(library), most_handles_);
  lock.unlock();  // a log may ask for the runtime's description
  log(log::Level::info,
      fmt::format("cuDNN {} of {}", cudnn::version_text(cudnn_->library->version()),
                  cudnn_->library->path()));
  return cudnn_.get();
}

bool Runtime::has_loaded_cudnn() const {
  const std::lock_guard lock(mutex_);
  return cudnn_ != nullptr;
}

// cuDNN's handles must be destroyed with their context current.
Runtime::~Runtime() {
  cuda::Scope scope;
  if (!scope.enter(device_).ok()) return;
  if (cudnn_ == nullptr) return;
  cudnn_->executing.clear();
  cudnn_->loading.clear();
}

void Runtime::log(log::Level level, const std::string& message) const {
  if (log_) log_(level, message);
}

}  // namespace attn::execute
