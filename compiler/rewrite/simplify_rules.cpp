#include "compiler/rewrite/simplify_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/ir/real_function.h"
#include "compiler/ir/value.h"
#include "compiler/masks/real_range.h"

namespace attn::rewrite {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;
using ir::SourcePos;

bool is_comparison(Op op) { return ir::info(op).rule == ir::Rule::comparison; }

// not (x op y) is x opposite(op) y, unless op is an ordering and a side is NaN.
Op opposite(Op op) {
  switch (op) {
    case Op::lt_: return Op::ge_;
    case Op::le_: return Op::gt_;
    case Op::gt_: return Op::le_;
    case Op::ge_: return Op::lt_;
    case Op::eq_: return Op::ne_;
    default: return Op::eq_;
  }
}

// Whether a function of numbers and infinities is never NaN.
bool is_function_without_nan(Op op) {
  const masks::RealRange all{-masks::kInfinity, masks::kInfinity, false};
  return ir::find_real_function(op) != nullptr && !masks::real_range(op, all, all).nan;
}

}  // namespace

Op mirrored(Op op) {
  switch (op) {
    case Op::lt_: return Op::gt_;
    case Op::le_: return Op::ge_;
    case Op::gt_: return Op::lt_;
    case Op::ge_: return Op::le_;
    default: return op;
  }
}

ExprId SimplifyingBuilder::make(Op op, const Operands& operands, SourcePos pos) {
  if (const Rewritten id = folded(op, operands, pos)) return *id;
  if (const Rewritten id = rewritten(op, operands, pos)) return *id;
  return dag_.add(op, operands, {}, pos);
}

SimplifyingBuilder::Rewritten SimplifyingBuilder::folded(Op op, const Operands& operands,
                                                         SourcePos pos) {
  std::vector<ir::Constant> values;
  for (ExprId id : operands) {
    const auto value = ir::constant_of(dag_, id);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  const auto value = ir::fold(op, values);
  return value ? Rewritten(ir::add_constant(dag_, *value, pos)) : std::nullopt;
}

SimplifyingBuilder::Rewritten SimplifyingBuilder::rewritten(Op op, const Operands& operands,
                                                            SourcePos pos) {
  if (op == Op::not_) return negate(operands[0]);
  if (op == Op::select_) return select(operands, pos);
  if (operands.size() == 1) return unary(op, operands[0], pos);
  if (operands.size() != 2) return std::nullopt;
  if (is_comparison(op)) return comparison(op, operands[0], operands[1], pos);
  if (op == Op::and_ || op == Op::or_) return logic(op, operands[0], operands[1]);
  return arithmetic(op, operands[0], operands[1], pos);
}

SimplifyingBuilder::Rewritten SimplifyingBuilder::arithmetic(Op op, ExprId x, ExprId y,
                                                             SourcePos pos) {
  switch (op) {
    case Op::sub_:
      if (is_integer(y, 0) || is_real(y, 0.0)) return x;
      if (x == y && dag_[x].type == ir::Type::integer) return dag_.integer(0, pos);
      return std::nullopt;
    case Op::div_: return is_real(y, 1.0) ? Rewritten(x) : std::nullopt;
    case Op::floordiv_: return is_integer(y, 1) ? Rewritten(x) : std::nullopt;
    case Op::mod_: return is_integer(y, 1) ? Rewritten(dag_.integer(0, pos)) : std::nullopt;
    case Op::pow_:
      if (is_real(y, 1.0)) return x;
      return is_real(y, 2.0) ? Rewritten(make(Op::mul_, {x, x}, pos)) : std::nullopt;
    default: break;
  }
  if (const Rewritten id = commuted_arithmetic(op, x, y)) return id;
  return commuted_arithmetic(op, y, x);
}

SimplifyingBuilder::Rewritten SimplifyingBuilder::commuted_arithmetic(Op op, ExprId x, ExprId y) {
  switch (op) {
    case Op::add_: return is_integer(y, 0) || is_real(y, -0.0) ? Rewritten(x) : std::nullopt;
    case Op::mul_:
      if (is_integer(y, 1) || is_real(y, 1.0)) return x;
      return is_integer(y, 0) ? Rewritten(y) : std::nullopt;
    case Op::min_: return x == y || is_real(y, masks::kInfinity) ? Rewritten(x) : std::nullopt;
    case Op::max_: return x == y || is_real(y, -masks::kInfinity) ? Rewritten(x) : std::nullopt;
    default: return std::nullopt;
  }
}

SimplifyingBuilder::Rewritten SimplifyingBuilder::unary(Op op, ExprId x, SourcePos pos) {
  const Node node = dag_[x];
  switch (op) {
    case Op::neg_: return node.is(Op::neg_) ? Rewritten(node.operands[0]) : std::nullopt;
    case Op::abs_:
      if (node.is(Op::abs_)) return x;
      return node.is(Op::neg_) ? Rewritten(make(Op::abs_, node.operands, pos)) : std::nullopt;
    case Op::floor_:
    case Op::ceil_:
      if (node.is(Op::floor_) || node.is(Op::ceil_) || node.is(Op::to_real_)) return x;
      return std::nullopt;
    case Op::to_real_:
      return node.is(Op::to_int_) || node.is(Op::widen_)
                 ? Rewritten(make(Op::to_real_, node.operands, pos))
                 : std::nullopt;
    case Op::widen_:
      return node.is(Op::const_int_) ? Rewritten(dag_.wide(dag_.integer_of(x), pos)) : std::nullopt;
    case Op::narrow_:
      if (node.is(Op::widen_)) return node.operands[0];
      return node.is(Op::const_wide_)
                 ? Rewritten(dag_.integer(ir::narrowed(dag_.integer_of(x)), pos))
                 : std::nullopt;
    default: return std::nullopt;
  }
}

SimplifyingBuilder::Rewritten SimplifyingBuilder::comparison(Op op, ExprId x, ExprId y,
                                                             SourcePos pos) {
  if (x == y && (dag_[x].type != ir::Type::real || never_nan(x))) {
    return dag_.boolean(op == Op::le_ || op == Op::ge_ || op == Op::eq_, pos);
  }
  if (const Rewritten id = comparison_of_boolean(op, x, y, pos)) return id;
  if (const Rewritten id = comparison_of_boolean(mirrored(op), y, x, pos)) return id;
  if (const Rewritten id = comparison_of_integers_made_real(op, x, y, pos)) return id;
  if (is_integer_made_real(x)) return std::nullopt;
  return comparison_of_integers_made_real(mirrored(op), y, x, pos);
}

SimplifyingBuilder::Rewritten SimplifyingBuilder::comparison_of_integers_made_real(Op op, ExprId x,
                                                                                   ExprId y,
                                                                                   SourcePos pos) {
  if (!is_integer_made_real(x)) return std::nullopt;
  const ExprId integer = dag_[x].operands[0];
  if (is_integer_made_real(y)) return make(op, {integer, dag_[y].operands[0]}, pos);
  if (!dag_[y].is(Op::const_real_)) return std::nullopt;
  const double value = dag_.real_of(y);
  const bool rounds_up = op == Op::lt_ || op == Op::ge_;
  const double bound = rounds_up ? std::ceil(value) : std::floor(value);
  if (!(std::fabs(bound) <= std::numeric_limits<std::int32_t>::max())) return std::nullopt;
  if (bound != value && op == Op::eq_) return dag_.boolean(false, pos);
  if (bound != value && op == Op::ne_) return dag_.boolean(true, pos);
  return make(op, {integer, dag_.integer(static_cast<std::int64_t>(bound), pos)}, pos);
}

SimplifyingBuilder::Rewritten SimplifyingBuilder::comparison_of_boolean(Op op, ExprId x, ExprId y,
                                                                        SourcePos pos) {
  const Node& node = dag_[x];
  const auto bound = ir::constant_of(dag_, y);
  const bool converts = node.is(Op::to_int_) || node.is(Op::to_real_);
  if (!bound || !converts || dag_[node.operands[0]].type != ir::Type::boolean) return std::nullopt;
  const ExprId boolean = node.operands[0];
  const auto outcome = [&](bool value) {
    const ir::Constant operand[] = {value};
    const ir::Constant sides[] = {*ir::fold(node.op, operand), *bound};
    return std::get<bool>(*ir::fold(op, sides));
  };
  const bool if_true = outcome(true);
  if (if_true == outcome(false)) return dag_.boolean(if_true, pos);
  return if_true ? boolean : negate(boolean);
}

SimplifyingBuilder::Rewritten SimplifyingBuilder::logic(Op op, ExprId x, ExprId y) {
  const bool neutral = op == Op::and_;  // true && x is x, false || x is x
  if (x == y || is_boolean(y, neutral) || is_boolean(x, !neutral)) return x;
  if (is_boolean(x, neutral) || is_boolean(y, !neutral)) return y;
  return std::nullopt;
}

SimplifyingBuilder::Rewritten SimplifyingBuilder::select(const Operands& operands, SourcePos pos) {
  const ExprId condition = operands[0], x = operands[1], y = operands[2];
  if (is_boolean(condition, true) || x == y) return x;
  if (is_boolean(condition, false)) return y;
  if (dag_[condition].is(Op::not_)) {
    return make(Op::select_, {dag_[condition].operands[0], y, x}, pos);
  }
  return dag_[x].type == ir::Type::boolean ? boolean_select(operands, pos)
                                           : select_of_products(operands, pos);
}

SimplifyingBuilder::Rewritten SimplifyingBuilder::select_of_products(const Operands& operands,
                                                                     SourcePos pos) {
  const Node x = dag_[operands[1]], y = dag_[operands[2]];
  if (!x.is(Op::mul_) || !y.is(Op::mul_)) return std::nullopt;
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 2; ++j) {
      if (x.operands[i] != y.operands[j]) continue;
      const ExprId rest =
          make(Op::select_, {operands[0], x.operands[1 - i], y.operands[1 - j]}, pos);
      return make(Op::mul_, {x.operands[i], rest}, pos);
    }
  }
  return std::nullopt;
}

SimplifyingBuilder::Rewritten SimplifyingBuilder::boolean_select(const Operands& operands,
                                                                 SourcePos pos) {
  const ExprId condition = operands[0], x = operands[1], y = operands[2];
  if (is_boolean(x, true)) return make(Op::or_, {condition, y}, pos);
  if (is_boolean(y, false)) return make(Op::and_, {condition, x}, pos);
  if (is_boolean(x, false)) return make(Op::and_, {negate(condition), y}, pos);
  if (is_boolean(y, true)) return make(Op::or_, {negate(condition), x}, pos);
  return std::nullopt;
}

ExprId SimplifyingBuilder::negate(ExprId id) {
  const auto known = opposites_.find(id);
  if (known != opposites_.end()) return known->second;
  const ExprId result = negated(id);
  opposites_.emplace(id, result);
  return result;
}

ExprId SimplifyingBuilder::negated(ExprId id) {
  const Node node = dag_[id];
  switch (node.op) {
    case Op::const_bool_: return dag_.boolean(!dag_.boolean_of(id), node.pos);
    case Op::not_: return node.operands[0];
    case Op::and_:
    case Op::or_:
      return make(node.is(Op::and_) ? Op::or_ : Op::and_,
                  {negate(node.operands[0]), negate(node.operands[1])}, node.pos);
    case Op::select_:
      return make(Op::select_,
                  {node.operands[0], negate(node.operands[1]), negate(node.operands[2])}, node.pos);
    default:
      return is_comparison(node.op) ? negated_comparison(id) : dag_.add(Op::not_, {id}, node.pos);
  }
}

ExprId SimplifyingBuilder::negated_comparison(ExprId id) {
  const Node node = dag_[id];
  const ExprId x = node.operands[0], y = node.operands[1];
  const bool is_ordering = !node.is(Op::eq_) && !node.is(Op::ne_);
  const bool may_be_unordered =
      dag_[x].type == ir::Type::real && is_ordering && !(never_nan(x) && never_nan(y));
  if (may_be_unordered) return dag_.add(Op::not_, {id}, node.pos);
  return make(opposite(node.op), node.operands, node.pos);
}

bool SimplifyingBuilder::is_integer(ExprId id, std::int64_t value) const {
  return dag_[id].is(Op::const_int_) && dag_.integer_of(id) == value;
}

bool SimplifyingBuilder::is_real(ExprId id, double value) const {
  return dag_[id].is(Op::const_real_) && dag_.real_of(id) == value &&
         std::signbit(dag_.real_of(id)) == std::signbit(value);
}

bool SimplifyingBuilder::is_boolean(ExprId id, bool value) const {
  return dag_[id].is(Op::const_bool_) && dag_.boolean_of(id) == value;
}

bool SimplifyingBuilder::is_integer_made_real(ExprId id) const {
  return dag_[id].is(Op::to_real_) && dag_[dag_[id].operands[0]].type == ir::Type::integer;
}

bool SimplifyingBuilder::operands_never_nan(const Node& node) {
  return std::ranges::all_of(node.operands, [this](ExprId id) { return never_nan(id); });
}

bool SimplifyingBuilder::never_nan(ExprId id) {
  const auto known = never_nan_.find(id);
  if (known != never_nan_.end()) return known->second;
  const Node node = dag_[id];
  bool result = false;
  switch (node.op) {
    case Op::const_real_: result = !std::isnan(dag_.real_of(id)); break;
    case Op::to_real_: result = true; break;
    case Op::select_: result = never_nan(node.operands[1]) && never_nan(node.operands[2]); break;
    case Op::min_:
    case Op::max_: result = never_nan(node.operands[0]) && never_nan(node.operands[1]); break;
    case Op::neg_:
    case Op::abs_:
    case Op::floor_:
    case Op::ceil_: result = never_nan(node.operands[0]); break;
    default: result = is_function_without_nan(node.op) && operands_never_nan(node); break;
  }
  return never_nan_.emplace(id, result).first->second;
}

}  // namespace attn::rewrite
