// Executable: a loaded plan. Part of attn.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "binding.hpp"
#include "executable.h"
#include "plan.hpp"
#include "runtime.hpp"

namespace attn {
inline namespace v2 {

// A loaded plan. Any number of threads may use it.
class Executable {
 public:
  Executable() = default;
  // A Direction converts to LoadOptions.
  static Result<Executable> load_file(const Runtime& runtime, const std::string& path,
                                      const LoadOptions& options = {}) {
    const attn_load_options plain = detail::plain_options(options);
    attn_executable* handle = nullptr;
    ATTN_TRY(detail::Caller()(attn_executable_load_file, runtime.handle(), path.c_str(), &plain,
                              &handle));
    return adopt(handle);
  }
  // `file` holds the contents of a plan file.
  static Result<Executable> load_memory(const Runtime& runtime, std::string_view file,
                                        const LoadOptions& options = {}) {
    const attn_load_options plain = detail::plain_options(options);
    const void* bytes = file.data();
    attn_executable* handle = nullptr;
    ATTN_TRY(detail::Caller()(attn_executable_load_memory, runtime.handle(), bytes, file.size(),
                              &plain, &handle));
    return adopt(handle);
  }
  // Loads one plan of an open file.
  static Result<Executable> load(const Runtime& runtime, const PlanFile& file, std::size_t index) {
    const attn_plan* plan = file.handle();
    attn_executable* handle = nullptr;
    ATTN_TRY(detail::Caller()(attn_executable_load_plan, runtime.handle(), plan, index, &handle));
    return adopt(handle);
  }
  // Takes over the reference, also on failure.
  static Result<Executable> adopt(attn_executable* handle) {
    Executable executable(handle);
    ATTN_TRY_ASSIGN_1_(executable.about_, read(handle), __LINE__);
    return executable;
  }

  // What attn_executable_info and the functions of its tensors and params say. References are valid
  // while a copy of this object lives.
  const std::string& name() const { return about().name; }
  const std::string& signature() const { return about().signature; }  // 32 hexadecimal digits
  const std::string& target() const { return about().target; }
  Direction direction() const { return about().direction; }
  std::int64_t workspace_bytes() const { return about().workspace_bytes; }  // of an execute
  std::int64_t device_bytes() const { return about().device_bytes; }        // while it is loaded
  const std::vector<TensorInfo>& tensors() const { return about().tensors; }
  const std::vector<ParamInfo>& params() const { return about().params; }

  // `kept_addresses`: number of address sets kept prepared for set_addresses; 0: 8. `stream`: that
  // of the executes, if it may be being captured. Errors: arguments.error(), and those of
  // attn_binding_create.
  Result<Binding> bind(const Arguments& arguments, Workspace workspace = Workspace::owned(),
                       std::uint64_t kept_addresses = 0, void* stream = nullptr) const {
    if (arguments.error()) return *arguments.error();
    attn_bind_options options = workspace.options();
    options.kept_addresses = kept_addresses;
    options.stream = stream;
    return detail::make<Binding, attn_binding>(attn_binding_create, handle(), arguments.handle(),
                                               &options);
  }

  // The same with a schedule, which the binding uses from the beginning: a workspace of its own has
  // no memory for what the schedule replaces.
  Result<Binding> bind(const Arguments& arguments, const Schedule& schedule,
                       Workspace workspace = Workspace::owned(), std::uint64_t kept_addresses = 0,
                       void* stream = nullptr) const;

  attn_executable* handle() const { return handle_.get(); }
  explicit operator bool() const { return handle() != nullptr; }

 private:
  explicit Executable(attn_executable* handle) : handle_(handle) {}

  struct About {
    std::string name, signature, target;
    Direction direction = Direction::forward;
    std::int64_t workspace_bytes = 0, device_bytes = 0;
    std::vector<TensorInfo> tensors;
    std::vector<ParamInfo> params;
  };

  const About& about() const {
    static const About nothing = {};
    return about_ ? *about_ : nothing;
  }

  static Result<std::shared_ptr<const About>> read(attn_executable* handle) {
    attn_executable_info info = {};
    info.size = sizeof info;
    ATTN_TRY(detail::Caller()(attn_executable_describe, handle, &info));
    auto about = std::make_shared<About>();
    about->name = info.name;
    about->signature = info.signature;
    about->target = info.target;
    about->direction = static_cast<Direction>(info.direction);
    about->workspace_bytes = info.workspace_bytes;
    about->device_bytes = info.device_bytes;
    ATTN_TRY_ASSIGN_1_(about->tensors,
                       detail::read_list<attn_tensor_info>(detail::tensor_info, info.tensor_count,
                                                           attn_executable_tensor, handle),
                       __LINE__);
    ATTN_TRY_ASSIGN_1_(about->params,
                       detail::read_list<attn_param_info>(detail::param_info, info.param_count,
                                                          attn_executable_param, handle),
                       __LINE__);
    return std::shared_ptr<const About>(std::move(about));
  }

  detail::Shared<attn_executable, attn_executable_retain, attn_executable_release> handle_;
  std::shared_ptr<const About> about_;
};

}  // namespace v2
}  // namespace attn
