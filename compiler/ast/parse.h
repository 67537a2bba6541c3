// Parsers for DSL and JSON text. Each reports every syntax error (at most kMaxSyntaxErrors) and
// returns nullopt if there are any. Safe for any input: size, bracket depth and expression depth
// are bounded.
#pragma once

#include <optional>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"

namespace attn::ast {

inline constexpr std::size_t kMaxSyntaxErrors = 20;
inline constexpr std::size_t kMaxBrackets = 100;

// Parses JSON or DSL, according to Source::is_json. A text is parsed once: later calls for the same
// source, or a copy of it, report and return the same again.
std::optional<Spec> parse(const support::Source& source, diag::Sink& sink);

// Reports a source that is larger than support::kMaxSourceBytes or not text, and returns false.
bool is_readable(const support::Source& source, diag::Sink& sink);

// Parses a text with syntax errors that parse() has reported: the items and clauses without any, in
// DSL. Nothing if not even the attention's opening line can be read, or in JSON. For editors, which
// show texts that are being typed.
std::optional<Spec> parse_incomplete(const support::Source& source);

// With syntax errors, `incomplete` gets what parse_incomplete returns.
std::optional<Spec> parse_dsl(const support::Source& source, diag::Sink& sink,
                              std::optional<Spec>* incomplete = nullptr);
std::optional<Spec> parse_json(const support::Source& source, diag::Sink& sink);

}  // namespace attn::ast
