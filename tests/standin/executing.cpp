#include "tests/standin/executing.h"

#include <utility>

#include "tests/standin/standins.h"

namespace attn::standin {

Result<std::shared_ptr<execute::Runtime>> open_runtime(int device, int most_handles) {
  cuda();  // must be loaded before anything loads the driver
  execute::RuntimeOptions options;
  options.device = device;
  options.cudnn_folder = folder();
  options.most_handles = most_handles;
  return execute::Runtime::open(options);
}

Case::Case(const plan::Plan& plan, execute::DeviceTensors tensors)
    : plan_(plan), tensors_(std::move(tensors)) {}

Result<Case> Case::make(const attn::cuda::Device& device, const plan::Plan& plan, int seed) {
  ATTN_ASSIGN(auto tensors, execute::DeviceTensors::allocate(device, plan.program));
  Case made(plan, std::move(tensors));
  ATTN_RETURN_IF_ERROR(made.fill(seed));
  return made;
}

Status Case::fill(int seed) {
  for (const plan::TensorInfo& info : plan_.program.tensors) {
    ATTN_ASSIGN(std::vector<std::byte> bytes, tensors_.download_bytes(info.name));
    if (info.is_output()) continue;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(static_cast<std::size_t>(seed) * 37 + i);
    }
    ATTN_RETURN_IF_ERROR(tensors_.upload_bytes(info.name, bytes));
    inputs_[info.name] = std::move(bytes);
  }
  for (const plan::ParamInfo& param : plan_.program.params) {
    params_[param.name] = param.dtype == DType::i32 ? seed : seed + 0.25;
  }
  expected_ = expected_outputs(plan_, inputs_, params_);
  return poison();
}

execute::Arguments Case::arguments() const {
  execute::Arguments arguments = tensors_.arguments();
  for (const plan::ParamInfo& param : plan_.program.params) {
    arguments.scalar(param.name, param.dtype, params_.at(param.name));
  }
  return arguments;
}

std::vector<void*> Case::addresses() const {
  std::vector<void*> addresses;
  const execute::Arguments arguments = tensors_.arguments();
  for (const plan::TensorInfo& info : plan_.program.tensors) {
    for (const execute::Arguments::Tensor& tensor : arguments.tensors()) {
      if (tensor.name == info.name) addresses.push_back(tensor.view.data);
    }
  }
  return addresses;
}

void Case::set_param(const std::string& name, double value) {
  params_.at(name) = value;
  expected_ = expected_outputs(plan_, inputs_, params_);
}

Status Case::poison() {
  for (const auto& [name, bytes] : expected_) {
    ATTN_RETURN_IF_ERROR(tensors_.fill(name, 0xff));
  }
  return {};
}

Result<bool> Case::is_right() const {
  for (const auto& [name, wanted] : expected_) {
    ATTN_ASSIGN(const std::vector<std::byte> bytes, tensors_.download_bytes(name));
    if (bytes != wanted) return false;
  }
  return true;
}

}  // namespace attn::standin
