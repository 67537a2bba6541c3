#include "runtime/execute/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/cudnn/library.h"
#include "runtime/graph/extent.h"
#include "runtime/graph/listing.h"

namespace attn::execute {
namespace {

// Alignment of rows whose strides are bound, and the bytes that they may be within.
constexpr std::int64_t kRowAlignment = 16, kMostMapped = std::int64_t{1} << 39;

std::string list(const std::vector<std::int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

template <typename Items>
std::string names_of(const Items& items) {
  std::vector<std::string> names;
  for (const auto& item : items) names.push_back(escaped(item.name));
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

template <typename Items>
auto find(const Items& items, std::string_view name) -> decltype(items.data()) {
  for (const auto& item : items) {
    if (item.name == name) return &item;
  }
  return nullptr;
}

const plan::TensorInfo* addressing(const plan::Program& program, const plan::TensorInfo& tensor) {
  return tensor.addressed_by.empty() ? nullptr : find(program.tensors, tensor.addressed_by);
}

// Page tables are [B, pages per sequence]; cu_seqlens, which address rows, are [B + 1].
bool has_form_of_page_table(const plan::TensorInfo& tensor) {
  constexpr std::size_t kRank = 2;
  return tensor.role == plan::TensorRole::control && tensor.dims.size() == kRank;
}

bool is_page_pool(const plan::Program& program, const plan::TensorInfo& tensor) {
  const plan::TensorInfo* by = addressing(program, tensor);
  return by != nullptr && has_form_of_page_table(*by);
}

bool same_strides(const plan::Program& program, const plan::TensorInfo& needed,
                  const TensorView& given) {
  for (std::size_t axis = 0; axis < needed.dims.size(); ++axis) {
    if (has_stride(program, needed, axis) && needed.strides[axis] != given.strides[axis])
      return false;
  }
  return true;
}

// Whether rows are adjacent elements at multiples of 16 bytes, within what tensor maps reach.
bool are_rows_in_place(const plan::TensorInfo& tensor) {
  const auto width = static_cast<std::int64_t>(size_of(tensor.dtype));
  for (std::size_t axis = 0; axis + 1 < tensor.dims.size(); ++axis) {
    if (tensor.strides[axis] <= 0 || tensor.strides[axis] % (kRowAlignment / width) != 0)
      return false;
  }
  const auto last = last_offset(tensor.dims, tensor.strides);
  return tensor.strides.back() == 1 && last && *last < kMostMapped / width;
}

// Whether pages and heads have places that a coordinate of a tensor map cannot say.
bool steps_beyond(const plan::TensorInfo& pool) {
  const auto steps = plan::steps_of_pages(pool);
  return !steps || *steps > plan::TensorMapArgument::kMostSteps;
}

bool names(const plan::OperandSource& source, const std::string& tensor) {
  const auto* named = std::get_if<plan::TensorOperand>(&source);
  return named != nullptr && named->name == tensor;
}

bool is_pointer_to(const plan::KernelArgument& argument, const std::string& tensor) {
  const auto* named = std::get_if<plan::TensorOperand>(&argument);
  return named != nullptr && named->name == tensor;
}

// Whether a kernel copies the pool, and so reads all of its pages. One that has a map of it reads
// those that the table lists.
bool is_copied(const plan::Program& program, const plan::TensorInfo& pool) {
  for (const plan::DeriveStep* step : plan::steps_of<plan::DeriveStep>(program)) {
    for (const plan::OperandSource& input : step->inputs) {
      if (names(input, pool.name)) return true;
    }
  }
  for (const plan::KernelStep* step : plan::steps_of<plan::KernelStep>(program)) {
    for (const plan::Launch& launch : step->launches) {
      for (const plan::KernelArgument& argument : launch.arguments) {
        if (is_pointer_to(argument, pool.name)) return true;
      }
    }
  }
  return false;
}

// Pages of the pool that kernels' tensor maps have.
std::int64_t mapped_pages(const plan::Program& program, const plan::TensorInfo& pool) {
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const plan::KernelStep* step : plan::steps_of<plan::KernelStep>(program)) {
    for (const plan::Launch& launch : step->launches) {
      for (const plan::KernelArgument& argument : launch.arguments) {
        const auto* map = std::get_if<plan::TensorMapArgument>(&argument);
        if (map != nullptr && map->tensor.name == pool.name)
          most = std::min(most, map->dims.back());
      }
    }
  }
  return most;
}

// Pages that page tables may list. Some kernels read zeros from pages beyond those that cuDNN's
// graph was built for, and tensor maps always do.
std::int64_t most_pages(const plan::Program& program, const plan::TensorInfo& pool) {
  std::int64_t most = mapped_pages(program, pool);
  for (const plan::CudnnStep* step : plan::steps_of<plan::CudnnStep>(program)) {
    for (const plan::Operand& operand : step->operands) {
      if (!names(operand.source, pool.name)) continue;
      most = std::min(most, step->graph.find(operand.uid)->dims[0]);
    }
  }
  return most;
}

// Checks addresses, and keeps the problems that were found.
class AddressChecker {
 public:
  AddressChecker(int device, const PointerClassifier& classify)
      : device_(device), classify_(classify) {}

  // An empty name means the workspace. Formats nothing if there is no error. `bytes` 0: any size.
  void check_address(const std::string& tensor, const void* address, std::int64_t alignment,
                     std::int64_t bytes) {
    if (address == nullptr) return fail("{} has a null address", subject(tensor));
    if (reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(alignment) != 0) {
      fail("{} is at address {}, which is not a multiple of {} bytes", subject(tensor), address,
           alignment);
    }
    const auto info = classified(tensor, address);
    if (info && is_in_memory(tensor, *info)) check_end(tensor, address, bytes, *info);
  }

  // A failed driver query is not an error of the caller.
  Status status() const {
    if (!unanswered_.ok()) return unanswered_;
    if (problems_.empty()) return {};
    return Error{ErrorCode::binding, problems_.front(),
                 std::vector<std::string>(problems_.begin() + 1, problems_.end()), ""};
  }

 protected:
  static std::string subject(const std::string& tensor) {
    return tensor.empty() ? "the workspace" : fmt::format("tensor '{}'", escaped(tensor));
  }

  std::optional<cuda::PointerInfo> classified(const std::string& tensor, const void* address) {
    Result<cuda::PointerInfo> info = classify_(address);
    if (info.ok()) return *info;
    if (!unanswered_.ok()) return std::nullopt;
    Error error = info.error();
    error.message = fmt::format("{}: {}", subject(tensor), error.message);
    unanswered_ = std::move(error);
    return std::nullopt;
  }

  bool can_be_used(const cuda::PointerInfo& info) const {
    return info.kind == cuda::MemoryKind::managed ||
           (info.kind == cuda::MemoryKind::device && info.device == device_);
  }

  bool is_in_memory(const std::string& tensor, const cuda::PointerInfo& info) {
    if (can_be_used(info)) return true;
    if (info.kind == cuda::MemoryKind::device) {
      fail("{} is in memory of CUDA device {} but the plan is loaded on device {}", subject(tensor),
           info.device, device_);
    } else {
      fail("{} is in {} but must be in memory of CUDA device {}", subject(tensor),
           to_string(info.kind), device_);
    }
    return false;
  }

  // Memory may be mapped in pieces: if the allocation ends early, check the next one.
  void check_end(const std::string& tensor, const void* address, std::int64_t bytes,
                 cuda::PointerInfo info) {
    const auto start = reinterpret_cast<std::uintptr_t>(address);
    const std::uintptr_t end = start + static_cast<std::uintptr_t>(bytes);
    while (info.end != 0 && info.end < end) {
      const std::uintptr_t at = info.end;
      const auto next = classified(tensor, reinterpret_cast<const void*>(at));
      if (!next) return;
      if (!can_be_used(*next) || (next->end != 0 && next->end <= at)) {
        return fail("{} takes {} bytes but its memory ends after {}", subject(tensor), bytes,
                    at - start);
      }
      info = *next;
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

class Checker : public AddressChecker {
 public:
  Checker(const plan::Program* program, int device, const PointerClassifier& classify)
      : AddressChecker(device, classify), program_(program) {}

  // `what` is "tensor" or "param". Reports unknown and missing names.
  template <typename Needed, typename Given>
  void check_names(const char* what, const Needed& needed, const Given& given) {
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (find(needed, given[i].name) != nullptr) continue;
      fail("the plan has no {} '{}'; it has {}", what, escaped(given[i].name), names_of(needed));
    }
    for (const auto& item : needed) {
      if (find(given, item.name) != nullptr) continue;
      fail("{} '{}' ({}) is not given", what, escaped(item.name), describe(item));
    }
  }

  void check_tensor(const plan::TensorInfo& needed, const TensorView& given) {
    if (given.as_planned) return check_tensor_address(needed, given.data);
    const std::size_t before = problems_.size();
    check_shape(needed, given);
    const bool fits = problems_.size() == before;
    check_address(needed.name, given.data, needed.alignment,
                  fits ? bytes_of(needed, given.dims, given.strides) : 0);
  }

  void check_shape(const plan::TensorInfo& needed, const TensorView& given) {
    if (given.dtype != needed.dtype) {
      fail("tensor '{}' is {} but the plan needs {}", escaped(needed.name), to_string(given.dtype),
           to_string(needed.dtype));
    }
    if (is_other_pool(needed, given)) {
      check_pages(needed, given.dims[0]);
    } else if (given.dims != needed.dims) {
      return fail("tensor '{}' has dims {} but the plan needs {}", escaped(needed.name),
                  list(given.dims), list(needed.dims));
    }
    const bool is_whole = given.strides.size() == needed.strides.size();
    if (is_whole && needed.bound_strides && !is_page_table(*program_, needed)) {
      return check_bound_strides(needed, given);
    }
    if (!is_whole || !fitting_strides(needed, given)) {
      fail("tensor '{}' has strides {} but the plan needs {}", escaped(needed.name),
           list(given.strides), list(needed.strides));
    }
  }

  void check_tensor_address(const plan::TensorInfo& needed, const void* address) {
    check_address(needed.name, address, needed.alignment,
                  bytes_of(needed, needed.dims, needed.strides));
  }

  // Checks that nothing is written where another tensor begins. Tensors may interleave (packed
  // layouts), so nothing more is certain to be an error. `address_of` takes the index of a tensor
  // of the program.
  template <typename AddressOf>
  void check_distinct(AddressOf address_of) {
    const std::vector<plan::TensorInfo>& tensors = program_->tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (!is_written(tensors[i]) && !is_written(tensors[j])) continue;
        const void* address = address_of(i);
        if (address == nullptr || address != address_of(j)) continue;
        const bool second = is_written(tensors[i]);
        fail("tensor '{}' is written but has the address of tensor '{}'",
             escaped(tensors[second ? i : j].name), escaped(tensors[second ? j : i].name));
      }
    }
  }

  void check_param(const plan::ParamInfo& needed, const Arguments::Scalar& given) {
    if (given.dtype != needed.dtype) {
      fail("param '{}' is {} but the plan needs {}", escaped(needed.name), to_string(given.dtype),
           to_string(needed.dtype));
      return;
    }
    if (Status status = check_scalar(needed.name, needed.dtype, given.value); !status.ok()) {
      problems_.push_back(status.error().message);
    }
  }

 private:
  static std::string describe(const plan::TensorInfo& tensor) {
    return fmt::format("{} {}", to_string(tensor.dtype), list(tensor.dims));
  }
  static std::string describe(const plan::ParamInfo& param) {
    return std::string(to_string(param.dtype));
  }

  // Size in bytes; 0 for tensors addressed by a table or offsets, which may be smaller.
  static std::int64_t bytes_of(const plan::TensorInfo& needed,
                               const std::vector<std::int64_t>& dims,
                               const std::vector<std::int64_t>& strides) {
    if (!needed.addressed_by.empty()) return 0;
    const auto last = last_offset(dims, strides);
    return last ? (*last + 1) * static_cast<std::int64_t>(size_of(needed.dtype)) : 0;
  }
  static bool is_written(const plan::TensorInfo& tensor) { return tensor.is_output(); }

  // A pool like the plan's, but with fewer or more pages.
  bool is_other_pool(const plan::TensorInfo& needed, const TensorView& given) const {
    return is_page_pool(*program_, needed) && given.dims.size() == needed.dims.size() &&
           given.dims[0] != needed.dims[0] && given.dims[0] > 0 &&
           std::equal(given.dims.begin() + 1, given.dims.end(), needed.dims.begin() + 1);
  }
  void check_bound_strides(const plan::TensorInfo& needed, const TensorView& given) {
    plan::TensorInfo bound = bound_tensor(*program_, needed, given);
    // Rows of a batch without a stride follow those of the batch before.
    if (!has_stride(*program_, bound, 0)) {
      bound.dims[0] = 1;
      bound.dims[2] = std::max<std::int64_t>(2, bound.dims[2]);
    }
    if (!are_rows_in_place(bound)) {
      return fail(
          "tensor '{}' has strides {} but the plan needs adjacent elements in each row, and other "
          "strides that are multiples of {} elements ({} bytes), above 0, all within 512 GiB",
          escaped(needed.name), list(given.strides), kRowAlignment / size_of(needed.dtype),
          kRowAlignment);
    }
    if (plan::takes_steps(*program_, needed.name) && steps_beyond(bound)) {
      return fail(
          "tensor '{}' has pages and heads at multiples of {} elements, of which at most {} can be "
          "addressed; strides with a larger common divisor reach further",
          escaped(needed.name), plan::common_step(bound), plan::TensorMapArgument::kMostSteps);
    }
    const std::int64_t row_bytes =
        bound.strides[2] * static_cast<std::int64_t>(size_of(needed.dtype));
    if (!has_stride(*program_, bound, 0) && row_bytes >= plan::TensorMapArgument::kPackedBytes) {
      return fail(
          "tensor '{}' has rows {} bytes apart; those of packed sequences must be less than {}",
          escaped(needed.name), row_bytes, plan::TensorMapArgument::kPackedBytes);
    }
    if (is_written(needed) && overlaps(bound.dims, bound.strides)) {
      fail("tensor '{}' is written but has strides {}, with which elements overlap",
           escaped(needed.name), list(given.strides));
    }
  }
  void check_pages(const plan::TensorInfo& needed, std::int64_t pages) {
    if (needed.bound_strides) return;
    if (is_copied(*program_, needed)) {
      return fail("tensor '{}' has {} pages but the plan copies all of its {}",
                  escaped(needed.name), pages, needed.dims[0]);
    }
    const std::int64_t most = most_pages(*program_, needed);
    if (pages <= most) return;
    fail("tensor '{}' has {} pages but the plan reads at most {}; its layout needs `pages = {}`",
         escaped(needed.name), pages, most, pages);
  }
  bool fitting_strides(const plan::TensorInfo& needed, const TensorView& given) const {
    if (same_strides(*program_, needed, given)) return true;
    return is_page_table(*program_, needed) && given.strides[0] >= needed.dims[1] &&
           (needed.dims[1] == 1 || given.strides[1] == 1);
  }

  const plan::Program* program_;  // the program of the tensors
};

}  // namespace

bool is_page_table(const plan::Program& program, const plan::TensorInfo& tensor) {
  return has_form_of_page_table(tensor) &&
         std::any_of(
             program.tensors.begin(), program.tensors.end(),
             [&](const plan::TensorInfo& other) { return other.addressed_by == tensor.name; });
}

bool has_stride(const plan::Program& program, const plan::TensorInfo& tensor, std::size_t axis) {
  constexpr std::size_t kBatches = 0, kRows = 2;
  const plan::TensorInfo* by = addressing(program, tensor);
  const bool is_packed = by != nullptr && !has_form_of_page_table(*by);
  if (is_packed && axis == kBatches) return false;
  return tensor.dims[axis] != 1 || (is_packed && axis == kRows);
}

bool has_tensors(const plan::Program& program, const Arguments& arguments) {
  return std::ranges::all_of(arguments.tensors(), [&](const Arguments::Tensor& given) {
    const plan::TensorInfo* tensor = find(program.tensors, given.name);
    if (tensor == nullptr || given.view.as_planned) return tensor != nullptr;
    if (tensor->dtype != given.view.dtype) return false;
    if (tensor->bound_strides) return tensor->dims.size() == given.view.dims.size();
    return tensor->dims == given.view.dims && tensor->strides.size() == given.view.strides.size() &&
           same_strides(program, *tensor, given.view);
  });
}

Status check_device(const plan::Plan& plan, const std::string& device_name, std::int64_t sm) {
  if (plan.target.sm == sm) return {};
  return Error{ErrorCode::plan_device,
               fmt::format("the plan was compiled for sm_{} ({}) but this device is sm_{} ({})",
                           plan.target.sm, escaped(plan.target.name), sm, device_name),
               {"compile the spec for this device, or `attnc compile --recompile` the plan"},
               ""};
}

Status check_version(const plan::Plan& plan, std::int64_t cudnn_version) {
  const bool runs_cudnn = !plan::steps_of<plan::CudnnStep>(plan.program).empty();
  if (!runs_cudnn || plan.cudnn_version == cudnn_version) return {};
  return Error{
      ErrorCode::plan_version,
      fmt::format("the plan was compiled with cuDNN {} but cuDNN {} is loaded",
                  cudnn::version_text(plan.cudnn_version), cudnn::version_text(cudnn_version)),
      {"compile the spec with this cuDNN, or `attnc compile --recompile` the plan"},
      ""};
}

Status check_arguments(const plan::Program& program, const Arguments& arguments, int device,
                       const PointerClassifier& classify) {
  Checker checker(&program, device, classify);
  checker.check_names("tensor", program.tensors, arguments.tensors());
  checker.check_names("param", program.params, arguments.scalars());
  for (const Arguments::Tensor& given : arguments.tensors()) {
    const plan::TensorInfo* needed = find(program.tensors, given.name);
    if (needed != nullptr) checker.check_tensor(*needed, given.view);
  }
  checker.check_distinct([&](std::size_t i) -> const void* {
    const Arguments::Tensor* given = find(arguments.tensors(), program.tensors[i].name);
    return given == nullptr ? nullptr : given->view.data;
  });
  for (const Arguments::Scalar& given : arguments.scalars()) {
    const plan::ParamInfo* needed = find(program.params, given.name);
    if (needed != nullptr) checker.check_param(*needed, given);
  }
  return checker.status();
}

Status check_tensor(const plan::Program& program, const plan::TensorInfo& tensor,
                    const TensorView& given, int device, const PointerClassifier& classify) {
  Checker checker(&program, device, classify);
  if (classify) {
    checker.check_tensor(tensor, given);
  } else {
    checker.check_shape(tensor, given);
  }
  return checker.status();
}

Status check_addresses(const plan::Program& program, std::span<void* const> addresses, int device,
                       const PointerClassifier& classify, std::span<void* const> known) {
  Checker checker(&program, device, classify);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (i < known.size() && known[i] == addresses[i]) continue;
    checker.check_tensor_address(program.tensors[i], addresses[i]);
  }
  checker.check_distinct([&](std::size_t i) { return addresses[i]; });
  return checker.status();
}

Status check_workspace(const void* workspace, std::int64_t bytes, int device,
                       const PointerClassifier& classify) {
  if (bytes == 0) return {};
  Checker checker(nullptr, device, classify);
  checker.check_address("", workspace, kWorkspaceAlignment, bytes);
  return checker.status();
}

Status check_scalar(const std::string& name, DType dtype, double value) {
  constexpr double kMaxF32 = std::numeric_limits<float>::max();
  if (dtype == DType::f32 && (!std::isfinite(value) || std::abs(value) <= kMaxF32)) return {};
  constexpr double kMin = -2147483648.0, kMax = 2147483647.0;
  if (dtype == DType::i32 && value >= kMin && value <= kMax && std::trunc(value) == value) {
    return {};
  }
  return Status(ErrorCode::binding, fmt::format("param '{}' is {}, which {} cannot represent",
                                                escaped(name), value, to_string(dtype)));
}

}  // namespace attn::execute
