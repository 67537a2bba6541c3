// ATTN_CHECK(condition, "expected invariant"): an internal error if it fails. Prints the source
// location and how to report the bug, and exits with code 70 (EX_SOFTWARE of sysexits.h). Writes no
// file, since it knows neither the spec nor the command.
#pragma once

#include <string_view>

namespace attn {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view what);

}  // namespace attn

#define ATTN_CHECK(condition, what)   \
  ((condition) ? static_cast<void>(0) \
               : ::attn::check_failed(__FILE__, __LINE__, #condition, (what)))
