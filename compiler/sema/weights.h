// What makes weights of scores: the clauses `weight` and `normalize`.
#pragma once

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/scope.h"

namespace attn::sema {

// The clauses of a spec that make weights, of which there may be one.
struct WeightClauses {
  const ast::Clause* normalize = nullptr;
  const ast::Clause* weight = nullptr;
};
WeightClauses find_weights(const ast::Spec& spec);

// Sets what is known before expressions are: whether weights depend on their own scores alone.
// Reports both clauses in one spec.
void begin_weights(const ast::Spec& spec, ir::Attention& attention, diag::Sink& sink);

// Sets the score, and what makes a weight of it, once all scores are known. Reports a sink, outputs
// and a gradient through lse that such weights do not have.
void finish_weights(const ast::Spec& spec, ir::Attention& attention, Scope& scope,
                    diag::Sink& sink);

}  // namespace attn::sema
