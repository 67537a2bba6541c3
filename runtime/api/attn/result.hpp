// Results and errors as values. Part of attn.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "error.h"

namespace attn {
inline namespace v2 {

// What went wrong, as attn_status.
enum class Code : std::int32_t {
  ok = ATTN_STATUS_OK,
  invalid_argument = ATTN_STATUS_INVALID_ARGUMENT,
  invalid_spec = ATTN_STATUS_INVALID_SPEC,
  unsupported = ATTN_STATUS_UNSUPPORTED,
  binding = ATTN_STATUS_BINDING,
  cuda = ATTN_STATUS_CUDA,
  cudnn = ATTN_STATUS_CUDNN,
  worker = ATTN_STATUS_WORKER,
  io = ATTN_STATUS_IO,
  mismatch = ATTN_STATUS_MISMATCH,
  plan_truncated = ATTN_STATUS_PLAN_TRUNCATED,
  plan_damaged = ATTN_STATUS_PLAN_DAMAGED,
  plan_foreign = ATTN_STATUS_PLAN_FOREIGN,
  plan_newer = ATTN_STATUS_PLAN_NEWER,
  plan_version = ATTN_STATUS_PLAN_VERSION,
  plan_device = ATTN_STATUS_PLAN_DEVICE,
  internal = ATTN_STATUS_INTERNAL,
  out_of_memory = ATTN_STATUS_OUT_OF_MEMORY,
  plan_shape = ATTN_STATUS_PLAN_SHAPE,
  plan_pending = ATTN_STATUS_PLAN_PENDING,
  plan_refused = ATTN_STATUS_PLAN_REFUSED,
  nccl = ATTN_STATUS_NCCL
};
// Its name, such as "plan_version".
inline const char* to_string(Code code) { return attn_status_name(static_cast<attn_status>(code)); }
// The exit code of attnc for it, see attn_status_exit_code.
inline int exit_code(Code code) { return attn_status_exit_code(static_cast<attn_status>(code)); }

// Classifies CUDA failures by what the application can do.
enum class CudaFailure : std::int32_t {
  none = ATTN_CUDA_NONE,
  other = ATTN_CUDA_OTHER,
  out_of_memory = ATTN_CUDA_OUT_OF_MEMORY,
  fault = ATTN_CUDA_FAULT,  // sticky
  no_driver = ATTN_CUDA_NO_DRIVER
};

// Why a call failed.
struct Error {
  Code code = Code::internal;
  std::string message;             // one sentence, no period
  std::vector<std::string> notes;  // what was tried, text from cuDNN or the driver, hints
  std::string payload;             // JSON, or empty
  CudaFailure cuda_failure = CudaFailure::none;
  int cuda_code = 0;  // CUresult, cudaError_t

  // The message, followed by a line "  note: .." for each note.
  std::string to_text() const {
    std::string text = message;
    for (const std::string& note : notes) text += "\n  note: " + note;
    return text;
  }
};

// Success or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::make_unique<Error>(std::move(error))) {}

  // Whether it is success.
  bool ok() const { return error_ == nullptr; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }  // requires !ok()

 private:
  std::unique_ptr<Error> error_;
};

// A T or an Error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  // Whether there is a T.
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Each requires ok().
  T& value() & { return *std::get_if<0>(&state_); }
  const T& value() const& { return *std::get_if<0>(&state_); }
  T&& value() && { return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const { return *std::get_if<1>(&state_); }  // requires !ok()

 private:
  std::variant<T, Error> state_;
};

// Returns from the enclosing function if `expression` (a Status or Result) is an error.
#define ATTN_TRY(expression)                                \
  do {                                                      \
    if (auto attn_tried = (expression); !attn_tried.ok()) { \
      return attn_tried.error();                            \
    }                                                       \
  } while (false)

// ATTN_TRY_ASSIGN(auto x, f()): declares or assigns the value, or returns the error. May be used
// more than once per line. These headers use ATTN_TRY_ASSIGN_1_ with __LINE__, because __COUNTER__
// in a header would break the one-definition rule.
#define ATTN_TRY_ASSIGN(target, expression) ATTN_TRY_ASSIGN_1_(target, expression, __COUNTER__)
#define ATTN_TRY_ASSIGN_1_(target, expression, id) ATTN_TRY_ASSIGN_2_(target, expression, id)
#define ATTN_TRY_ASSIGN_2_(target, expression, id)           \
  auto attn_tried_##id = (expression);                       \
  if (!attn_tried_##id.ok()) return attn_tried_##id.error(); \
  target = std::move(attn_tried_##id).value()

}  // namespace v2
}  // namespace attn
