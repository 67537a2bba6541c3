// The clause `gather chosen, count;`: each row sees the keys that a captured tensor lists.
#pragma once

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/scope.h"

namespace attn::sema {

// Sets attention.gather. Reports tensors that are not declared, or of another type or shape than
// i32[B, Sq, N] and i32[B, Sq], and clauses that such an attention does not have. Call it when
// tensors are added.
void set_gather(const ast::Spec& spec, ir::Attention& attention, Scope& scope, diag::Sink& sink);

}  // namespace attn::sema
