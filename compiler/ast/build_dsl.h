// Builds the AST from ANTLR's parse tree of the DSL. Only build_dsl.cpp and parse_dsl.cpp use
// ANTLR.
#pragma once

#include <antlr4-runtime.h>

#include <cstdint>
#include <optional>

#include "AttnSpecParser.h"
#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"

namespace attn::ast {

using Grammar = attn_grammar::AttnSpecParser;

Span span_of(const antlr4::Token* token);
Span span_of(antlr4::ParserRuleContext* context);

// Builds the spec from a tree without syntax errors. What the grammar cannot say is reported; then
// there is no spec.
std::optional<Spec> spec_of(Grammar::FileContext* file, diag::Sink& sink);

// The items and clauses without syntax errors, if the attention has a name.
std::optional<Spec> incomplete_spec_of(Grammar::FileContext* file, diag::Sink& sink);

// Where the attention's body begins; 0 without an attention.
std::uint32_t end_of_header(Grammar::FileContext* file);

}  // namespace attn::ast
