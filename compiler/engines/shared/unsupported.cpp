#include "compiler/engines/shared/unsupported.h"

#include <fmt/core.h>

namespace attn::engines {
namespace {

Error placed(ErrorCode code, ir::SourcePos pos, std::string message) {
  Error error{code, std::move(message)};
  if (pos.line != 0) {
    error.payload = fmt::format(R"({{"line": {}, "column": {}}})", pos.line, pos.column);
  }
  return error;
}

}  // namespace

Error unsupported(ir::SourcePos pos, std::string message, std::string help) {
  Error error = placed(ErrorCode::unsupported, pos, std::move(message));
  if (!help.empty()) error.notes.push_back(std::move(help));
  return error;
}

Error spec_error(ir::SourcePos pos, std::string message) {
  return placed(ErrorCode::invalid_spec, pos, std::move(message));
}

}  // namespace attn::engines
