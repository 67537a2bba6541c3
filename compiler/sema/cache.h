// Types and scales of keys and values of 8 bits beside queries of 16: `dtype bf16, k: e4m3, v:
// e4m3;` with `quantize kv(head);`.
#pragma once

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/scope.h"

namespace attn::sema {

// Whether the spec has `quantize kv`.
bool quantizes_cache(const ast::Spec& spec);

// Sets attention.cache, whose dtype, dims and layouts are set, and adds its scales to the tensors,
// or reports what is wrong. Returns whether the spec has one of the two clauses: then no other
// scales are declared.
bool set_cache(const ast::Spec& spec, ir::Attention& attention, Scope& scope, diag::Sink& sink);

}  // namespace attn::sema
