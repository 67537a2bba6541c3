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

Runtime::Runtime(cuda::Device device, std::shared_ptr<const cudnn::Library> library,
                 const RuntimeOptions& options)
    : device_(std::move(device)),
      library_(std::move(library)),
      log_(options.log),
      allocator_(options.allocator),
      executing_(library_, options.most_handles),
      loading_(library_, kMostLoads) {}

Result<std::shared_ptr<Runtime>> Runtime::open(const RuntimeOptions& options) {
  ATTN_RETURN_IF_ERROR(check_handles(options.most_handles));
  ATTN_ASSIGN(cuda::Device device, cuda::Device::open(options.device));
  ATTN_ASSIGN(auto library, cudnn::Library::load(options.cudnn_folder));
  std::shared_ptr<Runtime> runtime(new Runtime(std::move(device), std::move(library), options));
  runtime->log(
      log::Level::info,
      fmt::format("CUDA device {}: {} (sm_{}), cuDNN {} of {}", options.device,
                  runtime->device_.name(), runtime->device_.sm(),
                  cudnn::version_text(runtime->library_->version()), runtime->library_->path()));
  return runtime;
}

// cuDNN's handles must be destroyed with their context current.
Runtime::~Runtime() {
  cuda::Scope scope;
  if (!scope.enter(device_).ok()) return;
  executing_.clear();
  loading_.clear();
}

void Runtime::log(log::Level level, const std::string& message) const {
  if (log_) log_(level, message);
}

}  // namespace attn::execute
