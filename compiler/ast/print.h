// Tree -> text, in either surface. What is printed parses to the same tree; the second printing of
// anything is the same text.
#pragma once

#include <string>

#include "compiler/ast/ast.h"

namespace attn::ast {

// One clause a line; as few parentheses as the tree needs. Comments are not part of the tree.
std::string to_dsl(const Spec& spec);
std::string to_dsl(const Expr& expr);

// The form of grammar/attn.schema.json.
std::string to_json(const Spec& spec);

}  // namespace attn::ast
