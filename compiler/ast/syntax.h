// Messages for syntax errors of the DSL: what was found, what was expected, and a likely fix. Works
// on plain tokens, independent of the parser generator.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/diag/diagnostics.h"

namespace attn::ast {

struct Token {
  std::size_t type = 0;  // index into Tokens::kinds
  support::Span span;
  bool starts_line = false;
};

// A token's kind is its quoted spelling ("';'", "'dims'") or the name of its class ("NUMBER").
struct Tokens {
  std::vector<std::string> kinds;
  std::vector<Token> all;  // the last one is "EOF"

  const std::string& kind(std::size_t at) const { return kinds[all[at].type]; }
};

// The tokens of a DSL text, errors or not, and its comments. Empty for a text with too many.
struct Lexed {
  Tokens tokens;
  std::vector<support::Span> comments;
};
Lexed lex(const support::Source& source);

// Whether the token is a clause keyword at the start of a line, where parsing can resume.
bool starts_clause(const Tokens& tokens, std::size_t at);

// Reports the first byte outside comments that is not UTF-8; false if there is one.
bool is_utf8(const Tokens& tokens, diag::Sink& sink);

// Reports brackets nested deeper than kMaxBrackets; false if there are any.
bool brackets_are_bounded(const Tokens& tokens, diag::Sink& sink);

// What to write instead of a word of another language ("def"), or "".
std::string_view foreign_help(std::string_view word);

// Reports a syntax error at token `at`, where one of the `expected` kinds is required.
void report_syntax_error(const Tokens& tokens, std::size_t at,
                         const std::vector<std::string>& expected, diag::Sink& sink);

}  // namespace attn::ast
