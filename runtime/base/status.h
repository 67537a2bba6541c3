// Errors as values: `Status` is success or an Error, `Result<T>` a T or an Error. No exceptions
// cross library boundaries; results must be checked ([[nodiscard]]).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace attn {

enum class ErrorCode : std::uint8_t {
#define ATTN_ERROR(name, exit_code, what) name,
#include "runtime/base/error_codes.def"
#undef ATTN_ERROR
};

std::string_view to_string(ErrorCode code);
std::optional<ErrorCode> parse_error_code(std::string_view text);  // "plan_version"

// The exit code of command-line tools for this error.
int exit_code(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;               // one sentence, no trailing period or newline
  std::vector<std::string> notes{};  // what was tried, the library's text, hints
  std::string payload{};             // details as JSON, or empty

  // The message, followed by a line "  note: ..." for each note.
  std::string to_text() const;
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(Error error) : error_(std::move(error)) {}
  Status(ErrorCode code, std::string message) : error_(Error{code, std::move(message)}) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }  // requires !ok()

 private:
  std::optional<Error> error_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  Result(ErrorCode code, std::string message)
      : state_(std::in_place_index<1>, Error{code, std::move(message)}) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Each requires ok().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const { return std::get<1>(state_); }  // requires !ok()
  Status status() const { return ok() ? Status() : Status(error()); }

 private:
  std::variant<T, Error> state_;
};

}  // namespace attn

// Returns from the enclosing function if `expr` (a Status or Result) is an error.
#define ATTN_RETURN_IF_ERROR(expr)                        \
  do {                                                    \
    if (auto attn_status_ = (expr); !attn_status_.ok()) { \
      return attn_status_.error();                        \
    }                                                     \
  } while (false)

#define ATTN_CONCAT_INNER_(a, b) a##b
#define ATTN_CONCAT_(a, b) ATTN_CONCAT_INNER_(a, b)

// ATTN_ASSIGN(auto plan, load(path)): declares or assigns the value, or returns the error.
#define ATTN_ASSIGN(target, expr) ATTN_ASSIGN_(target, expr, ATTN_CONCAT_(attn_result_, __LINE__))
#define ATTN_ASSIGN_(target, expr, tmp) \
  auto tmp = (expr);                    \
  if (!tmp.ok()) return tmp.error();    \
  target = std::move(tmp).value()
