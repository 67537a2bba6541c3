// `prologue q: EXPR;`: what each row of q or k becomes before the products (ir::Prologue).
#pragma once

#include <string_view>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"

namespace attn::sema {

class Scope;

// The name of the row in a prologue: `x[d_idx]` is an element.
inline constexpr std::string_view kRow = "x";

// Several of one tensor act in order: the row of each is what the one before made.
void add_prologue(const ast::PrologueClause& clause, ir::Attention& attention, Scope& scope,
                  diag::Sink& sink);

}  // namespace attn::sema
