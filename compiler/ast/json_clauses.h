// The clauses of a JSON spec: a table of keywords, the keys beside each, and how its value is read.
#pragma once

#include "compiler/ast/json_expressions.h"

namespace attn::ast {

// Whether a key is the keyword of a clause.
bool is_clause(std::string_view key);

// Reads one clause, whose keyword is a key of the object; `dtype` only if there is no other
// keyword.
Clause read_clause(const JsonValue& json, JsonExpressions& in);

}  // namespace attn::ast
