#include <memory>
#include <string_view>
#include <utility>

#include "runtime/api/describe.h"
#include "runtime/api/failure.h"
#include "runtime/api/handles.h"
#include "runtime/api/sized.h"
#include "runtime/api/trust.h"
#include "runtime/plan/bundle.h"

namespace attn::api {
namespace {

Result<plan::Direction> direction_of(const attn_load_options& read) {
  switch (read.direction) {
    case ATTN_DIRECTION_FORWARD: return plan::Direction::forward;
    case ATTN_DIRECTION_BACKWARD: return plan::Direction::backward;
    default: break;
  }
  return {
      ErrorCode::invalid_argument,
      std::to_string(read.direction) + " is not an attn_direction: 0 is forward, 1 is backward"};
}

}  // namespace

Result<Reference<attn_executable>> load(attn_runtime& runtime, const plan::Plan& plan) {
  ATTN_ASSIGN(execute::Executable loaded, runtime.executables.get(plan));
  return Reference<attn_executable>(new attn_executable(std::move(loaded), plan));
}

ATTN_API attn_status attn_executable_load_file(attn_runtime* runtime, const char* path,
                                               const attn_load_options* options,
                                               attn_executable** executable, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given({{runtime, "the runtime"},
                                      {path, "the path"},
                                      {executable, "the output pointer for the executable"}}));
    ATTN_ASSIGN(const attn_load_options read, read_sized(options));
    ATTN_ASSIGN(const plan::Direction direction, direction_of(read));
    ATTN_ASSIGN(const plan::Plan plan, plan::load(path, direction, runtime->runtime->device().sm(),
                                                  Trust(read).of_file()));
    ATTN_ASSIGN(auto loaded, load(*runtime, plan));
    *executable = loaded.release();
    return {};
  });
}

ATTN_API attn_status attn_executable_load_memory(attn_runtime* runtime, const void* bytes,
                                                 size_t byte_count,
                                                 const attn_load_options* options,
                                                 attn_executable** executable, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(check_given({{runtime, "the runtime"},
                                      {bytes, "the contents of a plan file"},
                                      {executable, "the output pointer for the executable"}}));
    ATTN_ASSIGN(const attn_load_options read, read_sized(options));
    ATTN_ASSIGN(const plan::Direction direction, direction_of(read));
    const std::string_view file(static_cast<const char*>(bytes), byte_count);
    ATTN_RETURN_IF_ERROR(Trust(read)(file));
    ATTN_ASSIGN(const plan::Plan plan,
                plan::deserialize(file, direction, runtime->runtime->device().sm()));
    ATTN_ASSIGN(auto loaded, load(*runtime, plan));
    *executable = loaded.release();
    return {};
  });
}

ATTN_API void attn_executable_retain(attn_executable* executable) {
  if (executable != nullptr) executable->retain();
}

ATTN_API void attn_executable_release(attn_executable* executable) {
  if (executable != nullptr) executable->release();
}

ATTN_API attn_status attn_executable_describe(const attn_executable* executable,
                                              attn_executable_info* info, attn_error* error) {
  return guarded(error, [&]() -> Status {
    ATTN_RETURN_IF_ERROR(
        check_given({{executable, "the executable"}, {info, "the output pointer for the info"}}));
    const plan::Program& program = executable->executable.program();
    const bool backward = plan::direction_of(program) == plan::Direction::backward;
    attn_executable_info about = {};
    about.name = executable->name.c_str();
    about.signature = executable->signature.c_str();
    about.target = executable->target.c_str();
    about.workspace_bytes = executable->executable.workspace_bytes();
    about.direction = backward ? ATTN_DIRECTION_BACKWARD : ATTN_DIRECTION_FORWARD;
    about.tensor_count = program.tensors.size();
    about.param_count = program.params.size();
    about.device_bytes = executable->executable.device_bytes();
    return write_sized(info, about);
  });
}

ATTN_API attn_status attn_executable_tensor(const attn_executable* executable, size_t index,
                                            attn_tensor_info* info, attn_error* error) {
  return guarded(
      error, {{executable, "the executable"}, {info, "the output pointer for the info"}},
      [&] { return describe(executable->executable.program().tensors, index, "tensor", info); });
}

ATTN_API attn_status attn_executable_param(const attn_executable* executable, size_t index,
                                           attn_param_info* info, attn_error* error) {
  return guarded(
      error, {{executable, "the executable"}, {info, "the output pointer for the info"}},
      [&] { return describe(executable->executable.program().params, index, "param", info); });
}

}  // namespace attn::api
