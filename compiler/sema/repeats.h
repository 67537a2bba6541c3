// Clauses that may appear only once.
#pragma once

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"

namespace attn::sema {

// Reports those that appear again, with what to write instead.
void check_repeats(const ast::Spec& spec, diag::Sink& sink);

}  // namespace attn::sema
