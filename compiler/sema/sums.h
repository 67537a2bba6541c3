// `let c = cumsum(EXPR);`: sums along keys, which are a tensor (ir::KeySum).
#pragma once

#include <optional>
#include <string_view>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"

namespace attn::sema {

class Scope;

inline constexpr std::string_view kCumsum = "cumsum";

// Whether the value of a let is sums along keys, perhaps with a wrong number of arguments.
bool is_sum(const ast::Expr& value);

// Reports sums along keys that are a part of another expression.
void report_sum_inside(const ast::Expr& call, diag::Sink& sink);

// The sums of a let for which is_sum holds; nullopt after reporting why there are none. They are
// not added to the attention.
std::optional<ir::KeySum> check_sum(const ast::LetClause& let, const ir::Attention& attention,
                                    Scope& scope, diag::Sink& sink);

}  // namespace attn::sema
