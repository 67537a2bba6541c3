#include "compiler/ir/fold.h"

#include <limits>

#include "compiler/ir/attention.h"
#include "compiler/ir/value.h"

namespace attn::ir {
namespace {

using Folded = std::optional<Constant>;

Folded checked(std::int64_t value) {
  if (value < std::numeric_limits<std::int32_t>::min() ||
      value > std::numeric_limits<std::int32_t>::max()) {
    return std::nullopt;
  }
  return value;
}

Folded checked(const std::optional<std::int64_t>& value) {
  return value ? checked(*value) : std::nullopt;
}

Folded fold_integers(Op op, std::int64_t x, std::int64_t y) {
  switch (info(op).rule) {
    case Rule::comparison:
      return value_of_comparison(op, static_cast<double>(x), static_cast<double>(y));
    case Rule::to_real: return static_cast<double>(x);
    default: return checked(value_of_integers(op, x, y));
  }
}

Folded fold_reals(Op op, double x, double y) {
  switch (info(op).rule) {
    case Rule::comparison: return value_of_comparison(op, x, y);
    case Rule::truncate: return checked(truncated(x));
    default: return value_of_reals(op, x, y);
  }
}

Folded fold_booleans(Op op, bool x, bool y) {
  switch (op) {
    case Op::and_: return x && y;
    case Op::or_: return x || y;
    case Op::not_: return !x;
    case Op::to_real_: return x ? 1.0 : 0.0;
    case Op::to_int_: return std::int64_t{x};
    default: return std::nullopt;
  }
}

Folded leaf_value(const Dag& dag, ExprId id, const Dims& dims) {
  if (!dag[id].is(Op::dim_)) return constant_of(dag, id);
  const std::optional<Dim> dim = parse_dim(dag.symbol_of(id));
  const std::optional<std::int64_t> size = dim ? dims.get(*dim) : std::nullopt;
  return size ? checked(*size) : std::nullopt;
}

Folded fold_expression(const Dag& dag, ExprId root, const Dims& dims) {
  std::vector<Folded> values(root + std::size_t{1});
  const ExprId roots[] = {root};
  for (ExprId id : reachable(dag, roots)) {
    values[id] = leaf_value(dag, id, dims);
    if (values[id].has_value()) continue;
    std::vector<Constant> operands;
    for (ExprId operand : dag[id].operands) {
      if (values[operand].has_value()) operands.push_back(*values[operand]);
    }
    if (operands.size() == dag[id].operands.size()) values[id] = fold(dag[id].op, operands);
  }
  return values[root];
}

}  // namespace

std::optional<Constant> constant_of(const Dag& dag, ExprId id) {
  switch (dag[id].op) {
    case Op::const_bool_: return dag.boolean_of(id);
    case Op::const_int_: return dag.integer_of(id);
    case Op::const_real_: return dag.real_of(id);
    default: return std::nullopt;
  }
}

ExprId add_constant(Dag& dag, const Constant& value, SourcePos pos) {
  if (const bool* boolean = std::get_if<bool>(&value)) return dag.boolean(*boolean, pos);
  if (const double* real = std::get_if<double>(&value)) return dag.real(*real, pos);
  return dag.integer(std::get<std::int64_t>(value), pos);
}

std::optional<Constant> fold(Op op, std::span<const Constant> operands) {
  const Rule rule = info(op).rule;
  // Constants of 64 bits are not folded.
  if (operands.empty() || rule == Rule::symbol_type || rule == Rule::widen) return std::nullopt;
  if (op == Op::select_) return std::get<bool>(operands[0]) ? operands[1] : operands[2];
  const Constant& first = operands.front();
  const Constant& last = operands.back();
  if (const auto* x = std::get_if<std::int64_t>(&first)) {
    return fold_integers(op, *x, std::get<std::int64_t>(last));
  }
  if (const auto* x = std::get_if<double>(&first)) {
    return fold_reals(op, *x, std::get<double>(last));
  }
  return fold_booleans(op, std::get<bool>(first), std::get<bool>(last));
}

std::optional<std::int64_t> fold_integer(const Dag& dag, ExprId id) {
  return fold_integer(dag, id, Dims());
}

std::optional<std::int64_t> fold_integer(const Dag& dag, ExprId id, const Dims& dims) {
  if (dag[id].type != Type::integer) return std::nullopt;
  const Folded value = fold_expression(dag, id, dims);
  return value ? std::optional(std::get<std::int64_t>(*value)) : std::nullopt;
}

std::optional<double> fold_real(const Dag& dag, ExprId id) {
  if (dag[id].type != Type::real) return std::nullopt;
  const Folded value = fold_expression(dag, id, Dims());
  return value ? std::optional(std::get<double>(*value)) : std::nullopt;
}

}  // namespace attn::ir
