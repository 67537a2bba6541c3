#include "compiler/engines/native/strength_reduction.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/masks/range.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/rewrite/simplify_rules.h"

namespace attn::engines::native {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;
using ir::Type;
using Rewritten = std::optional<ExprId>;  // nullopt: no rule applies

// Makes one expression of `dag`, whose operands are there already.
class Reducer {
 public:
  Reducer(rewrite::SimplifyingBuilder& builder, const ir::Dag& dag, ir::SourcePos pos)
      : builder_(builder), dag_(dag), pos_(pos) {}

  // abs(x) % 2
  Rewritten parity(ExprId dividend, ExprId divisor) {
    if (constant(divisor) != 2 || !is_abs(dividend)) return std::nullopt;
    return builder_.make(Op::mod_, {inside(dividend), divisor}, pos_);
  }

  // abs(x) % n == 0; the sides in any order.
  Rewritten divisibility(Op op, ExprId x, ExprId y) {
    if (constant(x) == 0) std::swap(x, y);
    if (constant(y) != 0 || !dag_[x].is(Op::mod_)) return std::nullopt;
    const ExprId dividend = dag_[x].operands[0], divisor = dag_[x].operands[1];
    if (!is_abs(dividend) || constant(divisor).value_or(0) <= 0) return std::nullopt;
    const ExprId rest = builder_.make(Op::mod_, {inside(dividend), divisor}, pos_);
    return builder_.make(op, {rest, y}, pos_);
  }

  // abs(x) ordered with a constant, the sides in any order.
  Rewritten between(Op op, ExprId x, ExprId y) {
    if (is_abs(y)) std::swap(x, y), op = rewrite::mirrored(op);
    const std::optional<std::int64_t> bound = constant(y);
    if (!bound || *bound < 0 || *bound >= INT32_MAX || !is_abs(x)) return std::nullopt;
    const Op both = op == Op::lt_ || op == Op::le_ ? Op::and_ : Op::or_;
    const ExprId value = inside(x), low = builder_.make(Op::neg_, {y}, pos_);
    return builder_.make(both,
                         {builder_.make(rewrite::mirrored(op), {value, low}, pos_),
                          builder_.make(op, {value, y}, pos_)},
                         pos_);
  }

 private:
  std::optional<std::int64_t> constant(ExprId id) const {
    return dag_[id].is(Op::const_int_) ? std::optional(dag_.integer_of(id)) : std::nullopt;
  }
  bool is_abs(ExprId id) const { return dag_[id].is(Op::abs_) && dag_[id].type == Type::integer; }
  ExprId inside(ExprId abs) const { return dag_[abs].operands[0]; }

  rewrite::SimplifyingBuilder& builder_;
  const ir::Dag& dag_;
  ir::SourcePos pos_;
};

// Whether one of the operands is an absolute value that does not wrap around.
bool compares_magnitude(const ir::Dag& dag, const Node& node, masks::WholeRanges& ranges) {
  return std::ranges::any_of(node.operands, [&](ExprId id) {
    return dag[id].is(Op::abs_) && ranges[dag[id].operands[0]].low > INT32_MIN;
  });
}

}  // namespace

ir::Attention with_reduced_strength(const ir::Attention& attention) {
  const ir::Dag& from = attention.dag;
  masks::WholeRanges ranges(attention);
  return rewrite::rebuilt(
      attention,
      [&](rewrite::SimplifyingBuilder& builder, ir::Dag& dag, ExprId id,
          const std::vector<ExprId>& operands) -> Rewritten {
        const Node& node = from[id];
        if (operands.size() != 2 || from[node.operands[0]].type != Type::integer) return {};
        Reducer reducer(builder, dag, node.pos);
        switch (node.op) {
          case Op::mod_: return reducer.parity(operands[0], operands[1]);
          case Op::eq_:
          case Op::ne_: return reducer.divisibility(node.op, operands[0], operands[1]);
          case Op::lt_:
          case Op::le_:
          case Op::gt_:
          case Op::ge_:
            if (!compares_magnitude(from, node, ranges)) return {};
            return reducer.between(node.op, operands[0], operands[1]);
          default: return {};
        }
      });
}

}  // namespace attn::engines::native
