#include "runtime/base/error_code.h"

namespace attn {

std::optional<ErrorCode> parse_error_code(std::string_view text) {
#define ATTN_ERROR(name, exit_code, what) \
  if (text == #name) return ErrorCode::name;
#include "runtime/base/error_codes.def"
#undef ATTN_ERROR
  return std::nullopt;
}

}  // namespace attn
