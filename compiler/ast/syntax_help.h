// Reports a syntax error in words: what was expected, what was found, and what would help there.
#pragma once

#include "compiler/ast/syntax_place.h"

namespace attn::ast {

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
