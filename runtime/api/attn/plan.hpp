// Plan: the contents of a plan file, without a GPU. Part of attn.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan.h"
#include "tensor.hpp"

namespace attn {
inline namespace v2 {

// Which plan of a training pair.
enum class Direction : std::int32_t {
  forward = ATTN_DIRECTION_FORWARD,
  backward = ATTN_DIRECTION_BACKWARD
};

// Returns whether to accept a plan file, given its contents; called before any of it is parsed.
// Must not throw.
using Verify = std::function<bool(std::string_view file)>;

// A plan is code: load only plans you trust. A file with another hash, or one that `verify`
// rejects, is the error plan_refused.
struct LoadOptions {
  LoadOptions(Direction its_direction = Direction::forward) : direction(its_direction) {}

  Direction direction;
  std::optional<std::string> sha256 = {};  // 64 hexadecimal digits; nullopt: not checked
  Verify verify = {};
};

namespace detail {

// Sets hash and verify of attn_load_options or attn_picker_options; points into `options`.
template <typename Plain, typename Options>
void set_trust(Plain& plain, const Options& options) {
  if (options.sha256) plain.sha256 = options.sha256->c_str();
  if (!options.verify) return;
  plain.verify = [](void* verify, const void* bytes, std::size_t count) -> std::int32_t {
    return (*static_cast<const Verify*>(verify))({static_cast<const char*>(bytes), count}) ? 0 : 1;
  };
  plain.verify_user = const_cast<Verify*>(&options.verify);
}

inline attn_load_options plain_options(const LoadOptions& options) {
  attn_load_options plain = {};
  plain.size = sizeof plain;
  plain.direction = static_cast<attn_direction>(options.direction);
  set_trust(plain, options);
  return plain;
}

}  // namespace detail

// A plan of a plan file, read without a GPU.
struct PlanInfo {
  std::string name, signature, target, spec;
  int sm = 0;
  Direction direction = Direction::forward;
  std::int64_t cudnn_version = 0;
  std::int64_t workspace_bytes = 0, device_bytes = 0;
  std::vector<TensorInfo> tensors;
  std::vector<ParamInfo> params;
  Shape shape;
};

// The plans of a file. Needs neither CUDA nor cuDNN. Immutable; any number of threads may use it.
class PlanFile {
 public:
  PlanFile() = default;
  // Only hash and verify of the options are used.
  static Result<PlanFile> open(const std::string& path, const LoadOptions& options = {}) {
    const attn_load_options plain = detail::plain_options(options);
    return detail::make<PlanFile, attn_plan>(attn_plan_open, path.c_str(), &plain);
  }
  // `file` holds the contents of a plan file.
  static Result<PlanFile> open_memory(std::string_view file, const LoadOptions& options = {}) {
    const attn_load_options plain = detail::plain_options(options);
    const void* bytes = file.data();
    return detail::make<PlanFile, attn_plan>(attn_plan_open_memory, bytes, file.size(), &plain);
  }

  // Number of plans.
  std::size_t size() const { return attn_plan_count(handle()); }
  // `index` below size().
  Result<PlanInfo> plan(std::size_t index) const {
    const attn_plan* handle = this->handle();
    attn_plan_info info = {};
    info.size = sizeof info;
    ATTN_TRY(detail::Caller()(attn_plan_describe, handle, index, &info));
    PlanInfo plan{info.name,
                  info.signature,
                  info.target,
                  info.spec,
                  info.sm,
                  static_cast<Direction>(info.direction),
                  info.cudnn_version,
                  info.workspace_bytes,
                  info.device_bytes,
                  {},
                  {},
                  shape_of(info)};
    ATTN_TRY_ASSIGN_1_(plan.tensors,
                       detail::read_list<attn_tensor_info>(detail::tensor_info, info.tensor_count,
                                                           attn_plan_tensor, handle, index),
                       __LINE__);
    ATTN_TRY_ASSIGN_1_(plan.params,
                       detail::read_list<attn_param_info>(detail::param_info, info.param_count,
                                                          attn_plan_param, handle, index),
                       __LINE__);
    return plan;
  }

  attn_plan* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }
  explicit PlanFile(attn_plan* handle) : handle_(handle, attn_plan_close) {}  // owns it

 private:
  static Shape shape_of(const attn_plan_info& info) {
    attn_shape shape = {};
    for (std::size_t i = 0; i < ATTN_DIM_COUNT; ++i) shape.sizes[i] = info.sizes[i];
    shape.padded = info.padded;
    return Shape(shape);
  }

  std::shared_ptr<attn_plan> handle_;
};

}  // namespace v2
}  // namespace attn
