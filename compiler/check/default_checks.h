// Errors in the defaults of tensors, where the sizes are known.
#pragma once

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"

namespace attn::check {

// Reports the first element of each default that its type cannot hold, or that breaks what the spec
// declares: `monotone`, `runs`, and that lengths are within their dimension. `attention` is what
// sema built from `spec`. Not of spec.replaced. Of a large default only the first elements are
// evaluated; binding checks all.
void check_defaults(const ast::Spec& spec, const ir::Attention& attention, diag::Sink& sink);

}  // namespace attn::check
