// Clauses that are unknown.
#pragma once

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"

namespace attn::sema {

// Reports a clause whose body is an OtherClause: E0204.
void report_other_clause(const ast::Clause& clause, diag::Sink& sink);

// Reports every such clause of the spec; false if there are any. Their content is not in the tree,
// so the spec cannot be printed.
bool has_only_known_clauses(const ast::Spec& spec, diag::Sink& sink);

}  // namespace attn::sema
