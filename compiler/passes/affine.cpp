#include "compiler/passes/affine.h"

namespace attn::passes {
namespace {

using ir::Op;

Affine scaled(const Affine& x, std::int64_t factor) {
  return {x.row * factor, x.column * factor, x.constant * factor};
}

Affine sum(const Affine& x, const Affine& y) {
  return {x.row + y.row, x.column + y.column, x.constant + y.constant};
}

bool is_constant(const Affine& x) { return x.row == 0 && x.column == 0; }

std::optional<Affine> product(const Affine& x, const Affine& y) {
  if (is_constant(y)) return scaled(x, y.constant);
  if (is_constant(x)) return scaled(y, x.constant);
  return std::nullopt;
}

}  // namespace

std::optional<Affine> affine_of(const ir::Dag& dag, ir::ExprId id) {
  const ir::Node& node = dag[id];
  switch (node.op) {
    case Op::const_int_: return Affine{0, 0, dag.integer_of(id)};
    case Op::row_: return Affine{1, 0, 0};
    case Op::column_: return Affine{0, 1, 0};
    case Op::neg_: {
      const auto x = affine_of(dag, node.operands[0]);
      return x ? std::optional(scaled(*x, -1)) : std::nullopt;
    }
    case Op::add_:
    case Op::sub_:
    case Op::mul_: {
      const auto x = affine_of(dag, node.operands[0]);
      const auto y = affine_of(dag, node.operands[1]);
      if (!x || !y) return std::nullopt;
      if (node.op == Op::mul_) return product(*x, *y);
      return sum(*x, node.op == Op::sub_ ? scaled(*y, -1) : *y);
    }
    default: return std::nullopt;
  }
}

}  // namespace attn::passes
