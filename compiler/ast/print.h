// Tree -> text, in either surface. What is printed parses to the same tree, comments included; the
// second printing of anything is the same text. ("$schema" is in JSON alone.) A spec with clauses
// that are not built (OtherClause) has lost what they said.
#pragma once

#include <string>

#include "compiler/ast/ast.h"

namespace attn::ast {

// The canonical layout: a clause to a line with its comments, clause words padded to one width, as
// few parentheses as the tree and its reader need, lines of kColumns where they can be broken.
inline constexpr std::size_t kColumns = 100;
std::string to_dsl(const Spec& spec);
std::string to_dsl(const Expr& expr);

// The form of grammar/attn.schema.json.
std::string to_json(const Spec& spec);

}  // namespace attn::ast
