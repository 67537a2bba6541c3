// Text -> tree. Each reports every syntax error it finds (kMaxSyntaxErrors at most) and then
// returns nothing; a tree is complete. Any input is answered: size, bracket depth and expression
// depth are bounded.
#pragma once

#include <optional>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"

namespace attn::ast {

inline constexpr std::size_t kMaxSyntaxErrors = 20;
inline constexpr std::size_t kMaxBrackets = 100;

// JSON or DSL, as Source::is_json says.
std::optional<Spec> parse(const support::Source& source, diag::Sink& sink);

// False, and reported, when the source is larger than support::kMaxSourceBytes or is not text.
bool is_readable(const support::Source& source, diag::Sink& sink);

std::optional<Spec> parse_dsl(const support::Source& source, diag::Sink& sink);
std::optional<Spec> parse_json(const support::Source& source, diag::Sink& sink);

}  // namespace attn::ast
