#include "runtime/execute/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string_view>
#include <vector>

#include "runtime/cudnn/library.h"

namespace attn::execute {
namespace {

std::string list(const std::vector<std::int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

template <typename Items>
std::string names_of(const Items& items) {
  std::vector<std::string_view> names;
  for (const auto& item : items) names.push_back(item.name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

template <typename Items>
auto find(const Items& items, std::string_view name) -> decltype(items.data()) {
  for (const auto& item : items) {
    if (item.name == name) return &item;
  }
  return nullptr;
}

bool same_strides(const plan::TensorInfo& needed, const TensorView& given) {
  for (std::size_t axis = 0; axis < needed.dims.size(); ++axis) {
    if (needed.dims[axis] != 1 && needed.strides[axis] != given.strides[axis]) return false;
  }
  return true;
}

class Checker {
 public:
  Checker(int device, const PointerClassifier& classify) : device_(device), classify_(classify) {}

  // `what` is "tensor" or "param". Reports what is given twice, unknown, or not given.
  template <typename Needed, typename Given>
  void check_names(const char* what, const Needed& needed, const Given& given) {
    for (std::size_t i = 0; i < given.size(); ++i) {
      const std::string& name = given[i].name;
      if (find(needed, name) == nullptr) {
        fail("the plan has no {} '{}'; it has {}", what, name, names_of(needed));
      }
      if (find(given, name) != &given[i]) fail("{} '{}' is given twice", what, name);
    }
    for (const auto& item : needed) {
      if (find(given, item.name) != nullptr) continue;
      fail("{} '{}' ({}) is not given", what, item.name, describe(item));
    }
  }

  void check_tensor(const plan::TensorInfo& needed, const TensorView& given) {
    check_shape(needed, given);
    check_tensor_address(needed, given.data);
  }

  void check_tensor_address(const plan::TensorInfo& needed, const void* address) {
    check_address(needed.name, address, needed.alignment);
  }

  void check_param(const plan::ParamInfo& needed, const Arguments::Scalar& given) {
    if (given.dtype != needed.dtype) {
      fail("param '{}' is given as {} but is {}", needed.name, to_string(given.dtype),
           to_string(needed.dtype));
      return;
    }
    if (Status status = check_scalar(needed.name, needed.dtype, given.value); !status.ok()) {
      problems_.push_back(status.error().message);
    }
  }

  // Of the workspace when there is no name. What is right costs no text.
  void check_address(const std::string& tensor, const void* address, std::int64_t alignment) {
    if (address == nullptr) return fail("{} has a null address", subject(tensor));
    if (reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(alignment) != 0) {
      fail("{} is at address {}, which is not a multiple of {} bytes", subject(tensor), address,
           alignment);
    }
    Result<cuda::PointerInfo> info = classify_(address);
    if (info.ok()) return check_memory(tensor, *info);
    if (!unanswered_.ok()) return;
    Error error = info.error();
    error.message = fmt::format("{}: {}", subject(tensor), error.message);
    unanswered_ = std::move(error);
  }

  // That the driver did not answer is no mistake of the caller's.
  Status status() const {
    if (!unanswered_.ok()) return unanswered_;
    if (problems_.empty()) return {};
    return Error{ErrorCode::binding, problems_.front(),
                 std::vector<std::string>(problems_.begin() + 1, problems_.end()), ""};
  }

 private:
  static std::string describe(const plan::TensorInfo& tensor) {
    return fmt::format("{} {}", to_string(tensor.dtype), list(tensor.dims));
  }
  static std::string subject(const std::string& tensor) {
    return tensor.empty() ? "the workspace" : fmt::format("tensor '{}'", tensor);
  }
  static std::string describe(const plan::ParamInfo& param) {
    return std::string(to_string(param.dtype));
  }

  void check_shape(const plan::TensorInfo& needed, const TensorView& given) {
    if (given.dtype != needed.dtype) {
      fail("tensor '{}' is {} but the plan needs {}", needed.name, to_string(given.dtype),
           to_string(needed.dtype));
    }
    if (given.dims != needed.dims) {
      return fail("tensor '{}' has dims {} but the plan needs {}", needed.name, list(given.dims),
                  list(needed.dims));
    }
    if (given.strides.size() != needed.strides.size() || !same_strides(needed, given)) {
      fail("tensor '{}' has strides {} but the plan needs {}", needed.name, list(given.strides),
           list(needed.strides));
    }
  }

  void check_memory(const std::string& tensor, const cuda::PointerInfo& info) {
    if (info.kind == cuda::MemoryKind::managed) return;
    if (info.kind != cuda::MemoryKind::device) {
      return fail("{} is in {} but must be in memory of CUDA device {}", subject(tensor),
                  to_string(info.kind), device_);
    }
    if (info.device != device_) {
      fail("{} is in memory of CUDA device {} but the plan is loaded on device {}", subject(tensor),
           info.device, device_);
    }
  }

  template <typename... Args>
  void fail(fmt::format_string<Args...> text, Args&&... args) {
    problems_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  int device_;
  const PointerClassifier& classify_;
  std::vector<std::string> problems_;
  Status unanswered_;
};

}  // namespace

Status check_device(const plan::Plan& plan, const std::string& device_name, std::int64_t sm) {
  if (plan.target.sm == sm) return {};
  return Error{ErrorCode::plan_device,
               fmt::format("the plan was compiled for sm_{} ({}) but this device is sm_{} ({})",
                           plan.target.sm, plan.target.name, sm, device_name),
               {"compile the spec for this device, or run the plan with --recompile"},
               ""};
}

Status check_version(const plan::Plan& plan, std::int64_t cudnn_version) {
  if (plan.cudnn_version == cudnn_version) return {};
  return Error{
      ErrorCode::plan_version,
      fmt::format("the plan was compiled with cuDNN {} but cuDNN {} is loaded",
                  cudnn::version_text(plan.cudnn_version), cudnn::version_text(cudnn_version)),
      {"compile the spec with this cuDNN, or run the plan with --recompile"},
      ""};
}

Status check_arguments(const plan::Program& program, const Arguments& arguments, int device,
                       const PointerClassifier& classify) {
  Checker checker(device, classify);
  checker.check_names("tensor", program.tensors, arguments.tensors());
  checker.check_names("param", program.params, arguments.scalars());
  for (const Arguments::Tensor& given : arguments.tensors()) {
    const plan::TensorInfo* needed = find(program.tensors, given.name);
    if (needed != nullptr) checker.check_tensor(*needed, given.view);
  }
  for (const Arguments::Scalar& given : arguments.scalars()) {
    const plan::ParamInfo* needed = find(program.params, given.name);
    if (needed != nullptr) checker.check_param(*needed, given);
  }
  return checker.status();
}

Status check_addresses(const plan::Program& program, std::span<void* const> addresses, int device,
                       const PointerClassifier& classify) {
  Checker checker(device, classify);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    checker.check_tensor_address(program.tensors[i], addresses[i]);
  }
  return checker.status();
}

Status check_workspace(const void* workspace, std::int64_t bytes, int device,
                       const PointerClassifier& classify) {
  if (bytes == 0) return {};
  Checker checker(device, classify);
  checker.check_address("", workspace, kWorkspaceAlignment);
  return checker.status();
}

Status check_scalar(const std::string& name, DType dtype, double value) {
  if (dtype == DType::f32) return {};
  constexpr double kMin = -2147483648.0, kMax = 2147483647.0;
  if (dtype == DType::i32 && value >= kMin && value <= kMax && std::trunc(value) == value) {
    return {};
  }
  return Status(ErrorCode::binding,
                fmt::format("param '{}' is {}, which is no {}", name, value, to_string(dtype)));
}

}  // namespace attn::execute
