#include "runtime/base/status.h"

namespace attn {

std::string_view to_string(ErrorCode code) {
  static constexpr std::string_view kNames[] = {
#define ATTN_ERROR(name, exit_code, what) #name,
#include "runtime/base/error_codes.def"
#undef ATTN_ERROR
  };
  return kNames[static_cast<std::size_t>(code)];
}

std::optional<ErrorCode> parse_error_code(std::string_view text) {
#define ATTN_ERROR(name, exit_code, what) \
  if (text == #name) return ErrorCode::name;
#include "runtime/base/error_codes.def"
#undef ATTN_ERROR
  return std::nullopt;
}

int exit_code(ErrorCode code) {
  static constexpr int kExitCodes[] = {
#define ATTN_ERROR(name, exit_code, what) exit_code,
#include "runtime/base/error_codes.def"
#undef ATTN_ERROR
  };
  return kExitCodes[static_cast<std::size_t>(code)];
}

std::string Error::to_text() const {
  std::string text = message;
  for (const std::string& note : notes) text += "\n  note: " + note;
  return text;
}

}  // namespace attn
