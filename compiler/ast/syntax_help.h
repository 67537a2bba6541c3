// Reports a syntax error in words: what was expected, what was found, and what would help there.
#pragma once

#include <algorithm>
#include <optional>

#include "compiler/ast/syntax.h"

namespace attn::ast {

bool is_word(std::string_view kind);  // a name or a keyword of a clause
bool is_open(std::string_view kind);
bool is_close(std::string_view kind);
std::string_view partner(std::string_view open);

class SyntaxPlace {
 public:
  SyntaxPlace(const Tokens& tokens, std::size_t at, const std::vector<std::string>& expected,
              diag::Sink& sink)
      : tokens_(tokens), at_(at), expected_(expected), sink_(sink) {}

 protected:
  const std::string& kind(std::size_t at) const { return tokens_.kind(at); }
  support::Span span(std::size_t at) const { return tokens_.all[at].span; }
  std::string_view text(std::size_t at) const;

  bool expects(std::string_view kind) const {
    return std::ranges::find(expected_, kind) != expected_.end();
  }
  bool expects_expression() const { return expects("NUMBER"); }
  bool expects_operator() const { return expects("'*'"); }

  bool opens_clause(std::size_t at) const;
  // Whether the token is in a clause that this word begins.
  bool is_in_clause(std::size_t at, std::string_view word) const;
  // Whether `at` is in a function body where `name =` or `return` is expected.
  bool in_body(std::size_t at) const;
  // The text from token `at` to the end of the clause, or "..." if it is long.
  std::string_view value_text(std::size_t at) const;
  // The innermost bracket of this clause that is still open before the error.
  std::optional<std::size_t> open_bracket() const;

  const Tokens& tokens_;
  std::size_t at_;
  const std::vector<std::string>& expected_;
  diag::Sink& sink_;
};

class SyntaxHelp : public SyntaxPlace {
 public:
  explicit SyntaxHelp(const SyntaxPlace& place) : SyntaxPlace(place) {}

 protected:
  // Reports that token `at` is not what was expected.
  diag::Diagnostic& put(diag::Code code, std::size_t at);
  // Reports syntax of other languages.
  diag::Diagnostic& unexpected(support::Span place, std::string help);

 private:
  std::string help(std::size_t at) const;
  std::string head_help(std::size_t at) const;  // in the line with `attention`
  std::string body_help(std::size_t at) const;  // in fn f() { q_idx >= kv_idx }
  // `x, y = a, b` from token `at` on, split into assignments of one name.
  std::string assignments(std::size_t at) const;
  std::string expected_words() const;
  void put_classes(std::vector<std::string>& words) const;
  void put_spellings(std::vector<std::string>& words) const;
};

}  // namespace attn::ast
