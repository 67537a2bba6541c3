// Syntax of other languages, where an operator or an operand was expected: `and`, `x.abs()`, `if`.
#pragma once

#include "compiler/ast/syntax_help.h"

namespace attn::ast {

struct Foreign {
  std::string_view word;
  std::string_view help;
  std::string_view operator_here = "";  // that means the same
};

const Foreign* find_foreign(std::string_view word);  // nullptr if it is none

// Each reports the error and returns true, if it is of its kind.
class ForeignSyntax : public SyntaxHelp {
 public:
  using SyntaxHelp::SyntaxHelp;
  bool report_statement();
  bool report_word();

 private:
  bool report_module(std::size_t at);
  std::string method_help(std::size_t at) const;
  bool report_arrow();
  bool report_unequal();
  bool report_range();
  // Proposes `where` for the condition at this token, if it is one.
  void condition(std::size_t at, diag::Diagnostic& diagnostic);
};

}  // namespace attn::ast
