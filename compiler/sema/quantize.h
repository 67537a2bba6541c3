// Checks the `quantize` clause against the rest of the spec, and declares its scales.
#pragma once

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/scope.h"

namespace attn::sema {

// Where the clauses that belong together are; null: the spec has none.
struct QuantizeClauses {
  const ast::Clause* quantize = nullptr;
  const ast::Clause* dtype = nullptr;
  const ast::Clause* grad = nullptr;
};
QuantizeClauses find_quantize(const ast::Spec& spec);

// Sets attention.quantize, whose dtype is set, and adds the tensors of kScales to it. Call it
// before the spec's own tensors are added.
void set_quantize(const ast::Spec& spec, ir::Attention& attention, Scope& scope, diag::Sink& sink);

// Reports `quantize` beside other weights than softmax's, and warns of a default of scale_s with
// which the largest weight, exp(0), scaled as dropout does, saturates. Call it when the attention
// is complete.
void check_weights(const ast::Spec& spec, const ir::Attention& attention, diag::Sink& sink);

}  // namespace attn::sema
