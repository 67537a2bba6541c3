#include "runtime/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace attn {

void check_failed(const char* file, int line, const char* condition, std::string_view what) {
  std::fprintf(stderr, "attnc: internal error at %s:%d: %.*s (%s)\n", file, line,
               static_cast<int>(what.size()), what.data(), condition);
  std::fputs(
      "this is a bug in attnc, even if the spec is invalid; to report it, send the spec, the "
      "command "
      "and the line above\n",
      stderr);
  std::fflush(nullptr);
  std::_Exit(70);
}

}  // namespace attn
