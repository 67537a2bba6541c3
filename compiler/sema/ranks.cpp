// Reports a tensor that is read with too many or too few indexes, and proposes both edits: other
// indexes, and another declaration.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "compiler/ast/print.h"
#include "compiler/sema/names.h"
#include "compiler/sema/scope.h"
#include "compiler/support/text.h"

namespace attn::sema {
namespace {

using ast::Expr;
using diag::Code;
using ir::Dim;
using support::quoted;

// An index, and the dimension that it runs through.
struct Index {
  std::string_view name;
  Dim dim;
};
constexpr Index kIndexesOfTensors[] = {{"b", Dim::B},      {"h", Dim::Hq},  {"q_idx", Dim::Sq},
                                       {"q_raw", Dim::Sq}, {"q", Dim::Sq},  {"kv_idx", Dim::Skv},
                                       {"kv", Dim::Skv},   {"k", Dim::Skv}, {"d_idx", Dim::Dv}};

const Index* find_index(const Expr& expr) {
  const auto* found = std::ranges::find(kIndexesOfTensors, expr.text, &Index::name);
  return expr.operands.empty() && found != std::end(kIndexesOfTensors) ? found : nullptr;
}

// The index as it is called here: `q_idx` for `q`.
std::string text_of(const Expr& expr) {
  const Index* index = find_index(expr);
  if (index == nullptr) return ast::to_dsl(expr);
  return index->dim == Dim::Sq && expr.text == "q" ? "q_idx"
         : index->dim == Dim::Skv                  ? "kv_idx"
                                                   : expr.text;
}

std::string extent_text(const Expr& expr) {
  const Index* index = find_index(expr);
  return index == nullptr ? "N" : std::string(to_string(index->dim));
}

}  // namespace

void Scope::wrong_rank(const Expr& expr, const ir::CapturedTensor& tensor) {
  const std::size_t wanted = tensor.extents.size(), found = expr.operands.size();
  auto& diagnostic =
      report(Code::wrong_rank, expr.span,
             fmt::format("{} has {}, found {} index{}", quoted(tensor.name),
                         support::count_of(wanted, "dimension"), found, found == 1 ? "" : "es"));
  const auto declared = symbols_.find(tensor.name);
  if (declared == symbols_.end()) return;
  diagnostic.labels.push_back({declared->second.span, "declared here"});
  const std::string read = with_rank(expr, tensor, declared->second);
  diagnostic.help = fmt::format("read `{}`", read);
  if (is_dsl(expr)) diagnostic.fixes.push_back({diagnostic.help, {{expr.span, read}}});
  const ast::TensorClause* clause = declared->second.tensor;
  if (clause == nullptr || clause->name.text != expr.text) return;
  std::vector<std::string> extents;
  for (const Expr& index : expr.operands) extents.push_back(extent_text(index));
  if (std::ranges::find(extents, "N") != extents.end()) return;
  const std::string list = fmt::format("{}", fmt::join(extents, ", "));
  diagnostic.help +=
      ast::hint_for(sink_.source(), fmt::format(", or declare `{} {}: {}[{}];`",
                                                tensor.learned ? "learn" : "tensor", tensor.name,
                                                clause->dtype.text, list));
  if (!is_dsl(expr)) return;
  const support::Span all{clause->extents.front().span.begin, clause->extents.back().span.end};
  diagnostic.fixes.push_back({fmt::format("declare `{}[{}]`", tensor.name, list), {{all, list}}});
}

// An element of the tensor, by those of the written indexes that run through its dimensions.
std::string Scope::with_rank(const Expr& expr, const ir::CapturedTensor& tensor,
                             const Symbol& symbol) const {
  std::vector<std::string> indexes;
  for (const ir::ExprId extent : tensor.extents) {
    const auto size = ir::fold_integer(attention_.dag, extent);
    const auto fits = [&](const Expr& index) {
      const Index* its = find_index(index);
      if (its == nullptr || std::ranges::find(indexes, text_of(index)) != indexes.end())
        return false;
      return size ? attention_.dims.get(its->dim) == size
                  : attention_.dag[extent].is(ir::Op::dim_) &&
                        attention_.dag.symbol_of(extent) == to_string(its->dim);
    };
    const auto found = std::ranges::find_if(expr.operands, fits);
    if (found == expr.operands.end()) return example_of(tensor.name, symbol);
    indexes.push_back(text_of(*found));
  }
  return fmt::format("{}[{}]", expr.text, fmt::join(indexes, ", "));
}

}  // namespace attn::sema
