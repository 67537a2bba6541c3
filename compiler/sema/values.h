// The clause `values k[0..512];`: v is the first columns of k.
#pragma once

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/environment.h"

namespace attn::sema {

// The clause, or null.
const ast::Clause* find_values(const ast::Spec& spec);

// Sets attention.values_of_keys and the layout of v, which is that of k, and checks the columns
// against the dims. Reports what such an attention does not have: gradients, branches, 8-bit
// floats, a prologue of k, a layout of v. Call it when layouts and `quantize` are set.
void set_values(const ast::Spec& spec, ir::Attention& attention, Environment& environment,
                diag::Sink& sink);

}  // namespace attn::sema
