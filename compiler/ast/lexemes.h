// The words of a source text by what they are, to colour it.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/support/source.h"

namespace attn::ast {

enum class LexemeKind : std::uint8_t { keyword, name, function, number, string, comment, sign };

struct Lexeme {
  LexemeKind kind = LexemeKind::name;
  support::Span span;
};

// The lexemes in ascending order; what is between them is white space. The text, DSL or JSON, may
// have errors. Empty for a text of too many words.
std::vector<Lexeme> lexemes(const support::Source& source);

}  // namespace attn::ast
