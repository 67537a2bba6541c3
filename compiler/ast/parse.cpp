#include "compiler/ast/parse.h"

#include <fmt/format.h>

#include "compiler/support/text.h"

namespace attn::ast {

bool fits(const support::Source& source, diag::Sink& sink) {
  if (source.text().size() <= support::kMaxSourceBytes) return true;
  sink.report(diag::Code::too_large, {0, 0},
              fmt::format("the file is larger than {} KiB", support::kMaxSourceBytes / 1024));
  return false;
}

std::optional<Spec> parse(const support::Source& source, diag::Sink& sink) {
  return source.is_json() ? parse_json(source, sink) : parse_dsl(source, sink);
}

}  // namespace attn::ast
