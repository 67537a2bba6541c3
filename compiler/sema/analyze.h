// Semantic analysis: converts a syntax tree to IR and reports errors in names, types and shapes.
#pragma once

#include <cstdint>
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

// The spans of each expression in text order, by its id in the attention's dag. The use of a let or
// of `score` is not a span of its value. Expressions within a function have no spans; its result
// has the span of the call.
struct Spans {
  std::map<ir::ExprId, std::vector<support::Span>> of;

  struct Score {  // a score clause
    support::Span keyword;
    support::Span span;        // of its expression
    ir::ExprId before, after;  // what `score` stands for in it, and in the next
    bool binds_weakly;         // its operator, weaker than +, without parentheses around
  };
  std::vector<Score> scores;  // in text order

  std::vector<Spans> branches{};  // of ir::Attention::branches
};

// Returns nullopt after reporting errors. A library, which has no attention, is an error. `library`
// holds the imports of the spec (load_imports); its files report to the same sink. Dimensions
// without a size stay open (ir::Op::dim_). A binding is an error if the spec does not have the name
// or the value is not a number. A dimension with a set of sizes gets the first one unless it is
// bound. Adds to `spans`. Also returns nullopt, and stops the sink (diag::Sink::set_stopped), after
// `most_work` expressions: it is then unknown whether there are errors.
std::optional<ir::Attention> analyze(const ast::Spec& spec, const Library& library,
                                     const Bindings& bindings, diag::Sink& sink,
                                     Spans* spans = nullptr,
                                     std::optional<std::uint64_t> most_work = {});

// The same, but loads the imports of the spec.
std::optional<ir::Attention> analyze(const ast::Spec& spec, const Bindings& bindings,
                                     diag::Sink& sink, Spans* spans = nullptr);

// Maximum number of combinations of sizes in sets; lower for long specs.
inline constexpr std::size_t kMostCombinations = 256;

// The bindings of each requested plan: `bindings` with every combination of sizes, for dimensions
// that are bound to several sizes ("1024,2048"; duplicates are dropped) or have a set of sizes in
// the spec and are not bound. At least one; only `bindings` where analyze() reports errors, such as
// more than kMostCombinations.
std::vector<Bindings> variants(const ast::Spec& spec, const Bindings& bindings);

}  // namespace attn::sema
