#include "compiler/masks/axes.h"

namespace attn::masks {
namespace {

Axes leaf_axes(ir::Op op) {
  switch (op) {
    case ir::Op::batch_: return {.batch = true};
    case ir::Op::head_: return {.head = true};
    case ir::Op::row_: return {.row = true};
    case ir::Op::column_: return {.column = true};
    default: return {};
  }
}

}  // namespace

Axes operator|(Axes x, Axes y) {
  return {x.batch || y.batch, x.head || y.head, x.row || y.row, x.column || y.column};
}

Axes varying(Axes axes, const ir::Dims& dims) {
  const auto many = [&](ir::Dim dim) { return dims.get(dim).value_or(2) > 1; };
  return {axes.batch && many(ir::Dim::B), axes.head && many(ir::Dim::Hq),
          axes.row && many(ir::Dim::Sq), axes.column && many(ir::Dim::Skv)};
}

Axes Dependence::operator[](ir::ExprId id) {
  while (axes_.size() <= id) {
    const ir::Node& node = dag_[static_cast<ir::ExprId>(axes_.size())];
    Axes axes = leaf_axes(node.op);
    for (const ir::ExprId operand : node.operands) axes = axes | axes_[operand];
    axes_.push_back(axes);
  }
  return axes_[id];
}

}  // namespace attn::masks
