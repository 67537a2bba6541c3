// ATTN_CHECK(condition, "what should have held"): our own bug if it fails. Prints the place and
// what a report of the bug needs, and ends the process with exit code 70 (sysexits' EX_SOFTWARE).
// Writes no file: it knows neither the spec nor the command.
#pragma once

#include <string_view>

namespace attn {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view what);

}  // namespace attn

#define ATTN_CHECK(condition, what)   \
  ((condition) ? static_cast<void>(0) \
               : ::attn::check_failed(__FILE__, __LINE__, #condition, (what)))
