#include "compiler/reference/row_evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compiler/reference/operation.h"
#include "runtime/base/check.h"

namespace attn::reference {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;

const std::string& symbol_of(const Node& node) { return std::get<std::string>(node.attribute); }

// Whether it is an operation, of operands of which each must have a value.
bool is_computed(const Node& node) {
  return !node.operands.empty() && !node.is(Op::load_) && !node.is(Op::select_) &&
         !node.is(Op::and_) && !node.is(Op::or_);
}

// Makes `count` copies of a cell. Those of the row before are all one cell, and often the same.
void fill(std::vector<Cell>& cells, std::size_t count, const Cell& cell) {
  const bool is_same = !cells.empty() && cells[0].fault == cell.fault &&
                       wide_of(cells[0].value) == wide_of(cell.value);
  if (is_same)
    cells.resize(count, cell);
  else
    cells.assign(count, cell);
}

}  // namespace

RowEvaluator::RowEvaluator(const ir::Attention& attention, const Bindings& bindings,
                           std::span<const ExprId> roots)
    : attention_(attention),
      bindings_(bindings),
      ids_(ir::reachable(attention.dag, roots)),
      varies_(attention.dag.size()),
      cells_(attention.dag.size()) {
  for (const ExprId id : ids_) {
    const Node& node = attention.dag[id];
    varies_[id] =
        node.is(Op::score_) || node.is(Op::column_) ||
        std::ranges::any_of(node.operands, [&](ExprId each) -> bool { return varies_[each]; });
  }
}

void RowEvaluator::run(const RowPlace& place, std::span<const double> scores, double unit) {
  unit_ = unit;
  place_ = place;
  scores_ = scores;
  for (ExprId id : ids_) {
    const Node& node = attention_.dag[id];
    std::vector<Cell>& cells = cells_[id];
    if (!varies_[id]) {
      fill(cells, scores.size(), scores.empty() ? Cell() : evaluate(node, id, 0));
      continue;
    }
    cells.resize(scores.size());
    const bool computes = is_computed(node);
    const ir::Type type = computes ? attention_.dag[node.operands[0]].type : node.type;
    for (std::size_t column = 0; column < scores.size(); ++column) {
      const Cell cell = computes ? compute(node, id, type, column) : evaluate(node, id, column);
      // Copies by halves: a processor waits long if it reads as one what it has just written as
      // two.
      cells[column].value = cell.value;
      cells[column].fault = cell.fault;
    }
  }
}

Cell RowEvaluator::evaluate(const Node& node, ExprId id, std::size_t column) const {
  if (is_computed(node)) return compute(node, id, attention_.dag[node.operands[0]].type, column);
  if (node.is(Op::load_)) return load(node, id, column);
  if (node.operands.empty()) return leaf(node, column);
  return node.is(Op::select_) ? select(node, column) : logic(node, column);
}

Cell RowEvaluator::leaf(const Node& node, std::size_t column) const {
  switch (node.op) {
    case Op::const_bool_: return {std::get<bool>(node.attribute) ? 1.0 : 0.0, {}};
    case Op::const_int_: return {static_cast<double>(std::get<std::int64_t>(node.attribute)), {}};
    case Op::const_wide_: return {as_bits(std::get<std::int64_t>(node.attribute)), {}};
    case Op::const_real_: return {std::get<double>(node.attribute), {}};
    case Op::score_: return {scores_[column], {}};
    case Op::unit_: return {unit_, {}};
    case Op::batch_: return {static_cast<double>(place_.batch), {}};
    case Op::head_: return {static_cast<double>(place_.head), {}};
    case Op::row_: return {static_cast<double>(place_.row), {}};
    case Op::column_: return {static_cast<double>(place_.column_of(column)), {}};
    case Op::dim_:
      return {static_cast<double>(attention_.dims[*ir::parse_dim(symbol_of(node))]), {}};
    case Op::param_: return {bindings_.params.find(symbol_of(node))->second, {}};
    default: check_failed(__FILE__, __LINE__, "leaf", ir::info(node.op).name);
  }
}

Cell RowEvaluator::select(const Node& node, std::size_t column) const {
  const Cell& condition = operand(node, 0, column);
  if (condition.fault) return condition;
  return operand(node, condition.value != 0 ? 1 : 2, column);
}

Cell RowEvaluator::logic(const Node& node, std::size_t column) const {
  const double deciding = node.is(Op::and_) ? 0.0 : 1.0;
  const Cell& x = operand(node, 0, column);
  const Cell& y = operand(node, 1, column);
  if (!x.fault && x.value == deciding) return x;
  if (!y.fault && y.value == deciding) return y;
  return x.fault ? x : y;
}

Cell RowEvaluator::load(const Node& node, ExprId id, std::size_t column) const {
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    if (operand(node, i, column).fault) return operand(node, i, column);
  }
  const std::optional<std::int64_t> place = element(id, column);
  if (!place) return {0, id};
  const io::HostTensor& tensor = bindings_.tensors.find(symbol_of(node))->second;
  const auto at = static_cast<std::size_t>(*place);
  return {node.type == ir::Type::wide ? as_bits(tensor.integer(at)) : tensor.values[at], {}};
}

std::optional<std::int64_t> RowEvaluator::element(ExprId load, std::size_t column) const {
  const Node& node = attention_.dag[load];
  const io::HostTensor& tensor = bindings_.tensors.find(symbol_of(node))->second;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    const Cell& index = operand(node, i, column);
    const auto place = static_cast<std::int64_t>(index.value);
    if (index.fault || place < 0 || place >= tensor.dims[i]) return std::nullopt;
    offset = offset * tensor.dims[i] + place;
  }
  return offset;
}

Cell RowEvaluator::compute(const Node& node, ExprId id, ir::Type type, std::size_t column) const {
  const Cell& x = operand(node, 0, column);
  const Cell& y = operand(node, node.operands.size() - 1, column);
  if (x.fault) return x;
  if (y.fault) return y;
  const std::array<double, 2> values{x.value, y.value};  // the same twice for one operand
  const auto value = operation(node.op, type, values);
  return value ? Cell{*value, {}} : Cell{0, id};
}

Error RowEvaluator::describe(ExprId fault, std::size_t column) const {
  const Node& node = attention_.dag[fault];
  std::string reason = "has no value";
  if (node.is(Op::load_)) {
    const io::HostTensor& tensor = bindings_.tensors.find(symbol_of(node))->second;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      const double index = operand(node, i, column).value;
      if (index >= 0 && index < static_cast<double>(tensor.dims[i])) continue;
      reason = fmt::format("index {} is {}, outside 0..{}", i, index, tensor.dims[i] - 1);
      break;
    }
  } else if (node.is(Op::floordiv_) || node.is(Op::mod_)) {
    reason = "division by zero";
  } else if (node.is(Op::shift_left_) || node.is(Op::shift_right_)) {
    const double count = operand(node, 1, column).value;
    const bool is_wide = node.type == ir::Type::wide;
    reason =
        is_wide ? fmt::format("shift by {}", wide_of(count)) : fmt::format("shift by {}", count);
  } else if (node.is(Op::truncate_)) {
    reason = fmt::format("{} is not a 32-bit integer", operand(node, 0, column).value);
  }
  return {ErrorCode::binding,
          fmt::format("{}: {}, at b {}, h {}, row {}, column {}", to_source(attention_, fault),
                      reason, place_.batch, place_.head, place_.row, place_.column_of(column))};
}

}  // namespace attn::reference
