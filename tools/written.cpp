#include "tools/written.h"

#include <fmt/format.h>

#include "compiler/ast/parse.h"
#include "compiler/diag/diagnostics.h"
#include "runtime/base/check.h"
#include "tools/words.h"

namespace attn::tools {
namespace {

// The terms between &&, in text order.
void add_terms(const ast::Expr& expr, std::vector<const ast::Expr*>& terms) {
  const bool is_and =
      expr.kind == ast::ExprKind::binary && ast::spelling(expr.operators[0]) == "&&";
  if (!is_and) {
    terms.push_back(&expr);
    return;
  }
  for (const ast::Expr& operand : expr.operands) add_terms(operand, terms);
}

}  // namespace

bool before(support::Place a, support::Place b) {
  return a.line != b.line ? a.line < b.line : a.column < b.column;
}

WrittenConditions::WrittenConditions(const support::Source& source) {
  if (source.is_json()) return;
  diag::Sink sink(source);
  const std::optional<ast::Spec> spec = ast::parse(source, sink);
  ATTN_CHECK(spec.has_value(), "the spec was read before");
  const auto add = [&](support::Span span, const std::string& before_text) {
    const std::string_view text = source.text().substr(span.begin, span.end - span.begin);
    extents_.push_back(
        {source.place(span.begin), source.place(span.end), before_text + squeezed(text)});
  };
  for (const ast::Clause& clause : spec->clauses) {
    if (const auto* mask = std::get_if<ast::MaskClause>(&clause.body)) {
      std::vector<const ast::Expr*> terms;
      add_terms(mask->value, terms);
      for (const ast::Expr* term : terms) add(term->span, "");
    } else if (const auto* let = std::get_if<ast::LetClause>(&clause.body)) {
      add(let->value.span, let->name.text + " = ");
    }
  }
}

WrittenCondition WrittenConditions::at(SourcePos pos) const {
  const support::Place place{pos.line, pos.column};
  for (const Extent& extent : extents_) {
    if (!before(place, extent.begin) && before(place, extent.end)) {
      return {extent.text, extent.begin.line};
    }
  }
  return {};
}

}  // namespace attn::tools
