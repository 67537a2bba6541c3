#include <fmt/format.h>

#include <algorithm>

#include "tools/lsp/features.h"

namespace attn::tools::lsp {
namespace {

constexpr int kTypeHint = 1;

class Hints {
 public:
  explicit Hints(const Request& request)
      : request_(request),
        analysis_(request.analysis),
        wanted_(request.document.text.span(range_of(request.params.at("range")))) {}

  Json run() {
    const ast::Spec& spec = *analysis_.spec;
    for (const ast::SpecParameter& parameter : spec.parameters) {
      if (parameter.value) value(*parameter.value);
    }
    for (const ast::Clause& clause : spec.clauses) put(clause);
    if (const auto& masks = request_.document.slow.masks) shares(spec, *masks);
    return std::move(hints_);
  }

 private:
  void hint(std::uint32_t offset, const std::string& label, bool is_type = false) {
    if (label.empty() || offset < wanted_.begin || offset > wanted_.end) return;
    Json one = {{"position", to_json(request_.document.text.position(offset))},
                {"label", label},
                {"paddingLeft", true}};
    if (is_type) one["kind"] = kTypeHint;
    hints_.push_back(std::move(one));
  }

  // The value of an expression that is not a number itself.
  void value(const ast::Expr& expr) {
    if (expr.kind == ast::ExprKind::number) return;
    if (const auto number = analysis_.value_of(expr)) {
      hint(expr.span.end, "= " + to_text(*number));
    }
  }

  void put(const ast::Clause& clause) {
    if (const auto* dims = std::get_if<ast::DimsClause>(&clause.body)) {
      for (const ast::DimEntry& entry : dims->entries) {
        if (entry.size) value(*entry.size);
      }
    } else if (const auto* tensor = std::get_if<ast::TensorClause>(&clause.body)) {
      const bool is_plain = std::ranges::all_of(tensor->extents, [](const ast::Expr& extent) {
        return extent.kind == ast::ExprKind::number;
      });
      const Use* use = analysis_.index.at(tensor->name.span.begin);
      if (is_plain || use == nullptr || tensor->extents.empty()) return;
      const std::uint32_t after = end_of_shape(*tensor);
      hint(after, value_of(analysis_, analysis_.index.symbol(*use)));
    } else if (const auto* let = std::get_if<ast::LetClause>(&clause.body)) {
      const std::string_view type = analysis_.type_of(let->value.span);
      if (!type.empty()) hint(let->name.span.end, fmt::format(": {}", type), true);
    }
  }

  // The place after the closing bracket.
  std::uint32_t end_of_shape(const ast::TensorClause& tensor) const {
    const std::uint32_t last = tensor.extents.back().span.end;
    const std::size_t bracket = analysis_.source->text().find(']', last);
    return bracket == std::string_view::npos ? last : static_cast<std::uint32_t>(bracket + 1);
  }

  // Adds the share of each mask, and after the attention's name that of all, if it says more.
  void shares(const ast::Spec& spec, const MaskFacts& masks) {
    for (const MaskFacts::Share& share : masks.clauses) hint(share.clause.end, share.text);
    const bool is_said = masks.clauses.size() == 1 && masks.clauses.front().text == masks.total;
    if (!is_said) hint(spec.name.span.end, masks.total);
  }

  const Request& request_;
  const Analysis& analysis_;
  Span wanted_;
  Json hints_ = Json::array();
};

}  // namespace

Json inlay_hints(const Request& request) {
  if (!request.analysis.spec) return Json::array();
  return Hints(request).run();
}

}  // namespace attn::tools::lsp
