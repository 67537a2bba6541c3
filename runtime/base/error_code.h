// Parses error codes that another process sends as text.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/base/status.h"

namespace attn {

std::optional<ErrorCode> parse_error_code(std::string_view text);  // "plan_version"

}  // namespace attn
