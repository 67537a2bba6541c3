// Prints a syntax tree as DSL or JSON. The output parses to the same tree, including comments, and
// printing that tree again gives the same text. ("$schema" exists only in JSON.) The content of
// clauses that are unknown or not implemented (OtherClause) is lost.
#pragma once

#include <string>
#include <string_view>

#include "compiler/ast/ast.h"
#include "compiler/support/source.h"

namespace attn::ast {

// Canonical DSL: one clause per line with its comments, keywords padded to one width, only the
// parentheses needed for the tree or for clarity, lines broken at kColumns where possible.
inline constexpr std::size_t kColumns = 100;
std::string to_dsl(const Spec& spec);
std::string to_dsl(const Expr& expr);

// JSON as described by grammar/attn.schema.json.
std::string to_json(const Spec& spec);
std::string to_json(const Clause& clause);

// A hint for this source: in JSON, each clause in it that is written as `dtype bf16;` becomes
// `{"dtype": "bf16"}`.
std::string hint_for(const support::Source& source, std::string_view hint);

// Breaks `text`, which begins at column `indent`, into lines of at most kColumns - 1 (print.h).
// Breaks are after commas and before operators, preferably the outermost and least tightly binding
// ones. Further lines begin at `indent`; within parentheses or brackets, behind the innermost that
// is open, unless little room is left there. A part that cannot be broken may be longer.
std::string wrap(std::string_view text, std::size_t indent);

}  // namespace attn::ast
