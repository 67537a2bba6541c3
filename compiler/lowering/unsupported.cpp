#include "compiler/lowering/unsupported.h"

#include <fmt/core.h>

namespace attn::lowering {

Error unsupported(ir::SourcePos pos, std::string message, std::string help) {
  Error error{ErrorCode::unsupported, std::move(message), {}, {}};
  if (!help.empty()) error.notes.push_back(std::move(help));
  if (pos.line != 0) {
    error.payload = fmt::format(R"({{"line": {}, "column": {}}})", pos.line, pos.column);
  }
  return error;
}

}  // namespace attn::lowering
