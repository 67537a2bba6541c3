// Defaults of tensors.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/sema/scope.h"
#include "compiler/support/text.h"

namespace attn::sema {

using ast::Expr;
using ast::ExprKind;
using diag::Code;
using ir::Op;

std::optional<Value> Scope::check_default(const Expr& expr, const Site& site,
                                          std::span<const ir::ExprId> extents, bool is_replaced) {
  default_is_replaced_ = is_replaced;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const ir::ExprId index = attention_.dag.add(Op::index_, {}, static_cast<std::int64_t>(i),
                                                operations_.place(expr.span));
    locals_.push_back(
        {fmt::format("i{}", i), Local::Kind::value, operations_.leaf(index, kConstants), {}});
  }
  const std::optional<Value> value = element(expr, site, extents, 0);
  locals_.clear();
  return value && bounded(expr, *value) ? value : std::nullopt;
}

// The value of `expr`: a list along `axis`, or an element.
std::optional<Value> Scope::element(const Expr& expr, const Site& site,
                                    std::span<const ir::ExprId> extents, std::size_t axis) {
  if (expr.kind != ExprKind::list) return check(expr, site);
  if (!list_fits(expr, extents, axis)) return std::nullopt;
  std::vector<Value> elements;
  for (const Expr& one : expr.operands) {
    const bool is_list = one.kind == ExprKind::list;
    if (is_list != (axis + 1 < extents.size())) {
      report(Code::bad_value, one.span,
             is_list ? "the list has more levels than the tensor has dimensions"
                     : "the list needs one level for each dimension of the tensor")
          .help = "for example `[[1, 2], [3, 4]]` for a tensor [2, 2]";
      return std::nullopt;
    }
    const std::optional<Value> value = element(one, site, extents, axis + 1);
    if (!value) return std::nullopt;
    elements.push_back(*value);
  }
  return element_of(expr, std::move(elements), axis);
}

bool Scope::list_fits(const Expr& list, std::span<const ir::ExprId> extents, std::size_t axis) {
  const auto size = ir::fold_integer(attention_.dag, extents[axis]);
  const auto count = static_cast<std::int64_t>(list.operands.size());
  if (default_is_replaced_) return true;
  if (!size || *size == count) return true;  // an open dimension is compared once it is bound
  report(Code::bad_value, list.span,
         fmt::format("the list has {}, but the dimension has size {}",
                     support::count_of(list.operands.size(), "element"), *size));
  return false;
}

// Selects by the index along `axis`, as a tree to keep the depth small: where(i0 < 2, where(i0 < 1,
// a, b), c).
std::optional<Value> Scope::element_of(const Expr& list, std::vector<Value> elements,
                                       std::size_t axis) {
  const auto is_boolean = [](const Value& value) { return value.type == ir::Type::boolean; };
  const auto booleans = std::ranges::count_if(elements, is_boolean);
  if (booleans != 0 && static_cast<std::size_t>(booleans) != elements.size()) {
    report(Code::type_mismatch, list.span, "the list mixes booleans and numbers");
    return std::nullopt;
  }
  if (std::ranges::find(elements, ir::Type::real, &Value::type) != elements.end()) {
    for (Value& value : elements) value = operations_.to_real(value);
  } else if (std::ranges::find(elements, ir::Type::wide, &Value::type) != elements.end()) {
    for (Value& value : elements) value = operations_.to_wide(value);
  }
  ir::Dag& dag = attention_.dag;
  const ir::SourcePos pos = operations_.place(list.span);
  const ir::ExprId index = dag.add(Op::index_, {}, static_cast<std::int64_t>(axis), pos);
  std::vector<std::size_t> ends(elements.size());
  for (std::size_t i = 0; i < ends.size(); ++i) ends[i] = i + 1;
  while (elements.size() > 1) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < elements.size(); i += 2, ++kept) {
      const bool alone = i + 1 == elements.size();
      if (!alone) {
        const Value end =
            operations_.leaf(dag.integer(static_cast<std::int64_t>(ends[i]), pos), kConstants);
        const Value first = operations_.build(Op::lt_, {operations_.leaf(index, kConstants), end});
        elements[i] = operations_.build(Op::select_, {first, elements[i], elements[i + 1]});
      }
      elements[kept] = elements[i];
      ends[kept] = ends[alone ? i : i + 1];
    }
    elements.resize(kept);
    ends.resize(kept);
  }
  return elements[0];
}

}  // namespace attn::sema
