#include "compiler/engines/native/scoring.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "compiler/masks/axes.h"
#include "compiler/masks/box_values.h"
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

constexpr double kMostWeight = 1e30;
constexpr double kLeastFactor = 1e-6;  // addends are divided by it
constexpr int kMostDegree = 3;         // powers of unscaled products stay far from the ends of f32

bool is_weight(double value) { return value > 1 / kMostWeight && value < kMostWeight; }

// A number d for which f(c * score) = c^d f(score), for any c > 0; nullopt if there is none. Of an
// expression without the score it is 0.
class Degrees {
 public:
  explicit Degrees(const ir::Dag& dag) : dag_(dag) {}

  std::optional<int> of(ExprId root) {
    const ExprId roots[] = {root};
    for (const ExprId id : ir::reachable(dag_, roots)) degrees_[id] = of_node(dag_[id]);
    return degrees_[root];
  }

 private:
  std::optional<int> of_node(const Node& node) const {
    const auto operand = [&](std::size_t i) { return degrees_.find(node.operands[i])->second; };
    const auto common = [&](std::size_t i, std::size_t j) {
      return operand(i) == operand(j) ? operand(i) : std::nullopt;
    };
    switch (node.op) {
      case Op::score_: return 1;
      case Op::mul_: {
        if (!operand(0) || !operand(1)) return std::nullopt;
        return *operand(0) + *operand(1);
      }
      case Op::div_: return operand(1) == 0 ? operand(0) : std::nullopt;
      case Op::neg_:
      case Op::abs_: return operand(0);
      case Op::add_:
      case Op::sub_:
      case Op::min_:
      case Op::max_: return common(0, 1);
      case Op::select_: return operand(0) == 0 ? common(1, 2) : std::nullopt;
      default: break;
    }
    const bool scored =
        std::ranges::any_of(node.operands, [this](ExprId id) { return degrees_.at(id) != 0; });
    return scored ? std::nullopt : std::optional(0);
  }

  const ir::Dag& dag_;
  std::map<ExprId, std::optional<int>> degrees_;
};

// Takes a divisor off the root; false if it has none. Of weights, which are rounded more roughly
// than a product by the reciprocal.
bool take_divisor(const ir::Dag& dag, Scoring& scoring) {
  const Node& node = dag[scoring.root];
  if (!node.is(Op::div_) || !dag[node.operands[1]].is(Op::const_real_)) return false;
  const double weight = scoring.weight / dag.real_of(node.operands[1]);
  if (!is_weight(weight)) return false;
  scoring.weight = weight;
  scoring.root = node.operands[0];
  return true;
}

// Takes a constant factor off the root; false if it has none.
bool take_factor(const ir::Dag& dag, Scoring& scoring) {
  const Node& node = dag[scoring.root];
  if (!node.is(Op::mul_)) return false;
  for (std::size_t i = 0; i < 2; ++i) {
    const ExprId factor = node.operands[i];
    if (!dag[factor].is(Op::const_real_)) continue;
    const double weight = scoring.weight * dag.real_of(factor);
    if (!is_weight(weight)) return false;
    scoring.weight = weight;
    scoring.root = node.operands[1 - i];
    return true;
  }
  return false;
}

void take_factors(const ir::Attention& attention, Scoring& scoring) {
  const ir::Dag& dag = attention.dag;
  while (take_factor(dag, scoring) || (attention.is_linear() && take_divisor(dag, scoring))) {
  }
}

// What an expression is the silu of, x * sigmoid(x). It may be 0 where x is -inf.
std::optional<ExprId> operand_of_silu(const ir::Dag& dag, ExprId id) {
  const Node& node = dag[id];
  if (node.is(Op::mul_)) {
    for (std::size_t i = 0; i < 2; ++i) {
      const ExprId x = node.operands[i];
      const Node& other = dag[node.operands[1 - i]];
      if (other.is(Op::sigmoid_) && other.operands[0] == x) return x;
    }
  }
  if (!node.is(Op::select_) || ir::fold_real(dag, node.operands[1]) != 0) return std::nullopt;
  const Node& condition = dag[node.operands[0]];
  const auto x = operand_of_silu(dag, node.operands[2]);
  const bool is_infinite = condition.is(Op::eq_) && condition.operands[0] == x &&
                           ir::fold_real(dag, condition.operands[1]) == -masks::kInfinity;
  return is_infinite ? x : std::nullopt;
}

// Takes a silu off the root of linear weights.
void take_silu(const ir::Attention& attention, Scoring& scoring) {
  const auto x = operand_of_silu(attention.dag, scoring.root);
  if (!x || !attention.is_linear()) return;
  scoring.silu = scoring.weight;
  scoring.weight = 1;
  scoring.root = *x;
  take_factors(attention, scoring);
}

// Takes addends off the root, which is a sum; it keeps the product.
void take_addends(const ir::Attention& attention, Scoring& scoring) {
  ir::Attention scratch = attention;  // slopes are added to its dag
  const auto is_addend = [&](ExprId id) { return slope_of(scratch, id).has_value(); };
  for (;;) {
    const Node node = scratch.dag[scoring.root];
    if (!node.is(Op::add_) && !node.is(Op::sub_)) return;
    if (is_addend(node.operands[1])) {
      scoring.addends.push_back({node.operands[1], node.is(Op::sub_)});
      scoring.root = node.operands[0];
    } else if (node.is(Op::add_) && is_addend(node.operands[0])) {
      scoring.addends.push_back({node.operands[0]});
      scoring.root = node.operands[1];
    } else {
      return;
    }
  }
}

}  // namespace

std::vector<Line> lines_of(ir::Attention& attention, ExprId root) {
  return Finder(attention).run(root);
}

std::optional<ExprId> slope_of(ir::Attention& attention, ExprId id) {
  return Finder(attention).slope(id);
}

std::optional<double> positive_scale(const ir::Attention& attention) {
  const auto scale = ir::fold_real(attention.dag, attention.scale);
  return scale && is_weight(*scale) ? scale : std::nullopt;
}

bool exceeds_unscaled(const ir::Attention& attention) {
  const bool direct = attention.quotient && !attention.quotient->exponential;
  return direct || (attention.is_linear() && attention.dtype == DType::f16);
}

Scoring without_factors(const ir::Attention& attention) {
  Scoring scoring{.root = attention.score};
  take_factors(attention, scoring);
  return scoring;
}

Scoring scoring_of(const ir::Attention& attention) {
  Scoring scoring{.root = attention.score};
  masks::BoxValues values(attention);
  values.look_at(masks::whole_box(attention), {});
  const masks::RealRange& range = values.real(attention.score);
  const double bound = std::max(std::abs(range.low), std::abs(range.high));
  if (std::isfinite(bound)) scoring.bound = bound;
  take_factors(attention, scoring);
  take_silu(attention, scoring);
  take_addends(attention, scoring);
  if (attention.quantize) return scoring;  // scales of q and k are known at run time
  if (exceeds_unscaled(attention)) return scoring;
  const auto scale = positive_scale(attention);
  const auto degree = Degrees(attention.dag).of(scoring.root);
  if (!scale || !degree || *degree < 1 || *degree > kMostDegree) return scoring;
  const double factor = std::pow(*scale, *degree), weight = scoring.weight * factor;
  if (!is_weight(weight)) return scoring;
  if (!scoring.addends.empty() && (factor < kLeastFactor || factor > 1 / kLeastFactor))
    return scoring;
  scoring.weight = weight;
  scoring.addend_factor = 1 / factor;
  scoring.scaled = false;
  return scoring;
}

}  // namespace attn::engines::native
