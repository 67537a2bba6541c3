#include "compiler/engines/native/lines.h"

#include <set>

#include "compiler/masks/axes.h"
#include "compiler/masks/range.h"

namespace attn::engines::native {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;
using ir::Type;

constexpr std::int64_t kExact = std::int64_t{1} << 24;  // integers below are floats

class Finder {
 public:
  explicit Finder(ir::Attention& attention)
      : attention_(attention), dag_(attention.dag), dependence_(attention.dag) {}

  std::optional<ExprId> slope(ExprId id) && {
    find_scored(id);
    if (scored_.contains(id) || dag_[id].type != Type::real) return std::nullopt;
    return slope_of(id);
  }

  std::vector<Line> run(ExprId root) && {
    find_scored(root);
    look(root);
    return std::move(lines_);
  }

 private:
  void find_scored(ExprId root) {
    const ExprId roots[] = {root};
    for (const ExprId id : ir::reachable(dag_, roots)) {
      bool scored = dag_[id].is(Op::score_);
      for (const ExprId operand : dag_[id].operands) scored |= scored_.contains(operand);
      if (scored) scored_.insert(id);
    }
  }

  void look(ExprId id) {
    if (!dependence_[id].column || !seen_.insert(id).second) return;
    if (!scored_.contains(id) && dag_[id].type == Type::real) {
      if (const auto slope = slope_of(id)) {
        lines_.push_back({id, *slope});
        return;
      }
    }
    const std::vector<ExprId> operands = dag_[id].operands;
    for (const ExprId operand : operands) look(operand);
  }

  // The slope of an expression, of the same type; nullopt if it is not linear.
  std::optional<ExprId> slope_of(ExprId id) {
    const Node node = dag_[id];  // a copy: nodes are added
    const auto constant = [&](int value) {
      return node.type == Type::real ? dag_.real(value) : dag_.integer(value);
    };
    if (!dependence_[id].column) return constant(0);
    switch (node.op) {
      case Op::column_: return constant(1);
      case Op::to_real_: return of_conversion(node);
      case Op::neg_:
      case Op::add_:
      case Op::sub_: return of_sum(node);
      case Op::mul_: {
        const bool left = dependence_[node.operands[0]].column;
        return of_product(node, left ? 0 : 1);
      }
      case Op::div_: return of_product(node, 0);
      default: return std::nullopt;
    }
  }

  std::optional<ExprId> of_conversion(const Node& node) {
    const ExprId operand = node.operands[0];
    if (dag_[operand].type != Type::integer) return std::nullopt;
    const masks::Range range = masks::range_of(attention_, operand);
    if (range.low <= -kExact || range.high >= kExact) return std::nullopt;
    const auto slope = slope_of(operand);
    if (!slope) return std::nullopt;
    return dag_.add(Op::to_real_, {*slope}, node.pos);
  }

  std::optional<ExprId> of_sum(const Node& node) {
    std::vector<ExprId> slopes;
    for (const ExprId operand : node.operands) {
      const auto slope = slope_of(operand);
      if (!slope) return std::nullopt;
      slopes.push_back(*slope);
    }
    return dag_.add(node.op, slopes, {}, node.pos);
  }

  // `varies`: the operand with the column. The other must not have it.
  std::optional<ExprId> of_product(const Node& node, std::size_t varies) {
    if (dependence_[node.operands[1 - varies]].column) return std::nullopt;
    const auto slope = slope_of(node.operands[varies]);
    if (!slope) return std::nullopt;
    std::vector<ExprId> operands = node.operands;
    operands[varies] = *slope;
    return dag_.add(node.op, operands, {}, node.pos);
  }

  ir::Attention& attention_;
  ir::Dag& dag_;
  masks::Dependence dependence_;
  std::set<ExprId> scored_, seen_;
  std::vector<Line> lines_;
};

}  // namespace

std::vector<Line> lines_of(ir::Attention& attention, ExprId root) {
  return Finder(attention).run(root);
}

std::optional<ExprId> slope_of(ir::Attention& attention, ExprId id) {
  return Finder(attention).slope(id);
}

}  // namespace attn::engines::native
