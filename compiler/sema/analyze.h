// ast -> ir: names, types, shapes, defaults; every error with a place.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"
#include "compiler/sema/bindings.h"
#include "compiler/sema/library.h"

namespace attn::sema {

// Where expressions are written, by their id in the attention's dag: the places of each in the
// order of the text. Where a let or `score` stands for one is no place of it. What a function makes
// has none, but for its result, which is placed where the function is called.
using Spans = std::map<ir::ExprId, std::vector<support::Span>>;

// Nothing when errors were reported; a library, which has no attention, is an error. `library` has
// what the spec imports (load_imports), whose files report to the same sink. Dimensions without a
// size stay open (ir::Op::dim_). A binding that names nothing in the spec, or has no meaning as a
// number, is an error. Of a dimension with a set of sizes the first one is taken, unless it is
// bound. `spans` are added to.
std::optional<ir::Attention> analyze(const ast::Spec& spec, const Library& library,
                                     const Bindings& bindings, diag::Sink& sink,
                                     Spans* spans = nullptr);

// The same, and reads what the spec imports.
std::optional<ir::Attention> analyze(const ast::Spec& spec, const Bindings& bindings,
                                     diag::Sink& sink, Spans* spans = nullptr);

// Sets of sizes may have so many combinations, and fewer where the text is long.
inline constexpr std::size_t kMostCombinations = 256;

// One for each plan that is asked for: `bindings`, with every combination of the sizes of
// dimensions that are bound to several ("1024,2048", each size once), or have a set of them in the
// spec and are not bound. At least one; `bindings` alone where analyze() reports errors, as it does
// of more than kMostCombinations.
std::vector<Bindings> variants(const ast::Spec& spec, const Bindings& bindings);

}  // namespace attn::sema
