// Parsing for tests.
#pragma once

#include <optional>
#include <string>

#include "compiler/ast/parse.h"

namespace attn::ast {

struct Parsed {
  std::optional<Spec> spec;
  std::string text;  // of the diagnostics
  std::vector<diag::Diagnostic> diagnostics;
};

inline Parsed parse_text(const std::string& text, const std::string& name = "x.attn") {
  const support::Source source(name, text);
  diag::Sink sink(source);
  Parsed result;
  result.spec = parse(source, sink);
  result.text = diag::to_text(sink);
  result.diagnostics = sink.sorted();
  return result;
}

inline Parsed parse_mask(const std::string& expression) {
  return parse_text("attention f { mask " + expression + "; }");
}

inline const Expr& mask_of(const Parsed& parsed) {
  return std::get<MaskClause>(parsed.spec->clauses.back().body).value;
}

}  // namespace attn::ast
