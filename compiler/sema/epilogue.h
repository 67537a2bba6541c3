// What becomes of each element of o: the clauses `epilogue` and `gate`.
#pragma once

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/scope.h"

namespace attn::sema {

// The first of these clauses, or null.
const ast::Clause* find_epilogue(const ast::Spec& spec);

// Makes the clause's expression of `o`, or with `gate` o times the expression, what `o` is in the
// clauses that follow, and the attention's epilogue. Reports an epilogue of 8-bit floats.
void add_epilogue(const ast::Clause& clause, ir::Attention& attention, Scope& scope,
                  diag::Sink& sink);

}  // namespace attn::sema
