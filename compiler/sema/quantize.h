// Checks the `quantize` clause against the rest of the spec, and declares its scales.
#pragma once

#include <optional>

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

// The default of a scale that the spec writes; absent if it is reported. `pos`: of the clause.
std::optional<ir::ExprId> default_of_scale(const ast::Expr& expr, const ir::CapturedTensor& scale,
                                           ir::SourcePos pos, const ast::Spec& spec,
                                           ir::Attention& attention, Scope& scope,
                                           diag::Sink& sink);

// Sets attention.quantize or cache (cache.h), whose dtype is set, and adds the scales to it. Call
// it before the spec's own tensors are added.
void set_quantize(const ast::Spec& spec, ir::Attention& attention, Scope& scope, diag::Sink& sink);

// Reports `quantize` beside other weights than softmax's, and warns of a default of scale_s with
// which the largest weight, exp(0), scaled as dropout does, saturates. Call it when the attention
// is complete.
void check_weights(const ast::Spec& spec, const ir::Attention& attention, diag::Sink& sink);

}  // namespace attn::sema
