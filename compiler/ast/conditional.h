// Conditions as other languages write them, rewritten with `where`.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "compiler/ast/syntax.h"

namespace attn::ast {

// `text` does the same as what is written at `span`.
struct Rewritten {
  support::Span span;
  std::string text;
};

// Rewrites the condition whose `if` or `?` is token `at` of `source`: `if c: return a` with what
// follows it, `a if c else b`, `c ? a : b`. For `if c: x = a` without `else`, x keeps its value.
// nullopt for anything else, such as a branch of several statements.
std::optional<Rewritten> with_where(const Tokens& tokens, std::size_t at, std::string_view source);

}  // namespace attn::ast
