// Checks the clauses other than scores and masks, and stores their values in the attention.
#pragma once

#include <set>
#include <string>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/environment.h"
#include "compiler/sema/scope.h"

namespace attn::sema {

// Declares lengths_q and lengths_kv if the clause lists that side or one of its tensors is thd.
// add_length_defaults checks their defaults, once names are known.
void add_lengths(const ast::LengthsClause* clause, const ast::Name& spec_name,
                 ir::Attention& attention, Scope& scope, diag::Sink& sink);
void add_length_defaults(const ast::LengthsClause& clause,
                         const std::set<std::string, std::less<>>& replaced,
                         ir::Attention& attention, Scope& scope);

void set_align(const ast::AlignClause& clause, ir::Attention& attention, diag::Sink& sink);
// The clauses that the spec has, before or after this one.
struct OutputsOf {
  bool sink = false;
  bool quantize = false;
  bool epilogue = false;
};
void set_outputs(const ast::OutputsClause& clause, OutputsOf spec, ir::Attention& attention,
                 diag::Sink& sink);
void set_shard(const ast::ShardClause& clause, ir::Attention& attention, diag::Sink& sink);

// Call these after the tensors are declared.
void set_gradients(const ast::GradClause& clause, ir::Attention& attention, diag::Sink& sink);
void set_sink(const ast::SinkClause& clause, ir::Attention& attention, Scope& scope);
void set_dropout(const ast::Clause& clause, ir::Attention& attention, Environment& environment,
                 Scope& scope, diag::Sink& sink);

}  // namespace attn::sema
