#include "compiler/ir/parts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace attn::ir {
namespace {

// An expression with numbers in place of the term and the unit.
class Substitution {
 public:
  Substitution(const Dag& dag, double term, double unit) : dag_(dag), term_(term), unit_(unit) {}

  std::optional<double> of(ExprId root) {
    const ExprId roots[] = {root};
    for (const ExprId id : reachable(dag_, roots)) made_[id] = make(dag_[id]);
    const auto value = fold_real(filled_, made_[root]);
    return value && std::isfinite(*value) ? value : std::nullopt;
  }

 private:
  ExprId make(const Node& node) {
    if (node.is(Op::score_)) return filled_.real(term_);
    if (node.is(Op::unit_)) return filled_.real(unit_);
    std::vector<ExprId> operands;
    for (const ExprId operand : node.operands) operands.push_back(made_[operand]);
    return filled_.add_like(node, operands);
  }

  const Dag& dag_;
  double term_, unit_;
  Dag filled_;
  std::map<ExprId, ExprId> made_;
};

// Values of an expression on the line of all directions, where the term is x and the unit 1 - x:
// there it is linear in pieces.
class Line {
 public:
  explicit Line(const Dag& dag) : dag_(dag) {}

  double at(ExprId id, double x) const {
    return value_of_part(dag_, id, x, 1 - x).value_or(std::nan(""));
  }

  // Two places between those of a piece.
  static std::array<double, 2> inside(double low, double high) {
    return {low + (high - low) / 3, high - (high - low) / 3};
  }

  // Where the difference of two expressions, or one that is compared with 0, changes its sign, if
  // it is linear between `low` and `high`.
  std::optional<double> root(ExprId a, std::optional<ExprId> b, double low, double high) const {
    const auto [x, y] = inside(low, high);
    const auto difference = [&](double place) { return at(a, place) - (b ? at(*b, place) : 0.0); };
    const double first = difference(x), slope = (difference(y) - first) / (y - x);
    const double found = x - first / slope;
    return found > low + kNear && found < high - kNear ? std::optional(found) : std::nullopt;
  }

  static constexpr double kNear = 1e-9;

 private:
  const Dag& dag_;
};

// The ends of pieces in which both parts are linear.
class Pieces {
 public:
  Pieces(const Dag& dag, const Quotient& quotient) : dag_(dag), line_(dag) {
    const ExprId roots[] = {quotient.f, quotient.g};
    below_ = reachable(dag, roots);
  }

  // nullopt if there are too many.
  std::optional<std::vector<double>> find() {
    for (std::size_t piece = 0; piece + 1 < ends_.size();) {
      const auto root = first_root(ends_[piece], ends_[piece + 1]);
      if (!root) {
        ++piece;
        continue;
      }
      if (ends_.size() == kMost) return std::nullopt;
      ends_.insert(ends_.begin() + static_cast<std::ptrdiff_t>(piece) + 1, *root);
    }
    return ends_;
  }

 private:
  static constexpr std::size_t kMost = 64;

  std::optional<double> first_root(double low, double high) const {
    for (const ExprId id : below_) {
      const Node& node = dag_[id];
      std::optional<double> root;
      if (node.is(Op::abs_)) root = line_.root(node.operands[0], {}, low, high);
      if (compares(node)) root = line_.root(node.operands[0], node.operands[1], low, high);
      if (root) return root;
    }
    return std::nullopt;
  }

  bool compares(const Node& node) const {
    const bool is_comparison = node.type == Type::boolean && node.operands.size() == 2 &&
                               dag_[node.operands[0]].type == Type::real;
    return is_comparison || node.is(Op::min_) || node.is(Op::max_);
  }

  const Dag& dag_;
  Line line_;
  std::vector<ExprId> below_;
  std::vector<double> ends_ = {0, 1};
};

// In pieces, and at their ends, from both sides and at the place itself.
bool vanish_on_line(const Dag& dag, const Quotient& quotient) {
  const auto ends = Pieces(dag, quotient).find();
  if (!ends) return false;
  const Line line(dag);
  const auto fits = [](double f, double g) {
    return std::abs(g) > Line::kNear ? true : std::abs(f) <= Line::kNear;  // not with a NaN
  };
  for (std::size_t piece = 0; piece + 1 < ends->size(); ++piece) {
    const double low = (*ends)[piece], high = (*ends)[piece + 1];
    const auto [x, y] = Line::inside(low, high);
    const double f[] = {line.at(quotient.f, x), line.at(quotient.f, y)};
    const double g[] = {line.at(quotient.g, x), line.at(quotient.g, y)};
    if (!fits(f[0], g[0]) || !fits(f[1], g[1])) return false;
    if (!fits(2 * f[0] - f[1], 2 * g[0] - g[1])) return false;
    if (!fits(2 * f[1] - f[0], 2 * g[1] - g[0])) return false;
  }
  return std::ranges::all_of(
      *ends, [&](double x) { return fits(line.at(quotient.f, x), line.at(quotient.g, x)); });
}

// Compares functions of a score by their form.
class Forms {
 public:
  explicit Forms(const Dag& dag) : dag_(dag) {}

  bool vanish(const Quotient& quotient) {
    add_zero(quotient.g);
    return is_above_0(quotient.g) || is_zero(quotient.f);
  }

 private:
  // What is 0 where this is.
  void add_zero(ExprId id) {
    zeros_.push_back(id);
    const Node& node = dag_[id];
    const bool by_number = node.operands.size() == 2 && is_number(node.operands[1]);
    const bool is_product = node.is(Op::mul_);
    if (node.is(Op::abs_) || node.is(Op::neg_)) add_zero(node.operands[0]);
    if (is_product && node.operands[0] == node.operands[1]) add_zero(node.operands[0]);
    if ((is_product || node.is(Op::div_) || is_power(node)) && by_number)
      add_zero(node.operands[0]);
    if (is_product && is_number(node.operands[0])) add_zero(node.operands[1]);
  }

  bool is_zero(ExprId id) const {
    if (std::ranges::find(zeros_, id) != zeros_.end()) return true;
    const Node& node = dag_[id];
    const auto operand = [&](std::size_t i) { return is_zero(node.operands[i]); };
    switch (node.op) {
      case Op::const_real_: return dag_.real_of(id) == 0;
      case Op::abs_:
      case Op::neg_:
      case Op::tanh_:
      case Op::div_: return operand(0);
      case Op::mul_: return operand(0) || operand(1);
      case Op::add_:
      case Op::sub_:
      case Op::min_:
      case Op::max_: return operand(0) && operand(1);
      case Op::select_: return operand(1) && operand(2);
      case Op::pow_: return is_power(node) && operand(0);
      default: return false;
    }
  }

  bool is_above_0(ExprId id) const {
    const Node& node = dag_[id];
    if (node.is(Op::const_real_)) return dag_.real_of(id) > 0;
    if (!node.is(Op::add_)) return false;
    const ExprId a = node.operands[0], b = node.operands[1];
    return (is_above_0(a) && is_from_0(b)) || (is_above_0(b) && is_from_0(a));
  }

  bool is_from_0(ExprId id) const {
    const Node& node = dag_[id];
    switch (node.op) {
      case Op::const_real_: return dag_.real_of(id) >= 0;
      case Op::abs_:
      case Op::exp_:
      case Op::sigmoid_: return true;
      case Op::mul_: return node.operands[0] == node.operands[1];
      case Op::max_: return is_from_0(node.operands[0]) || is_from_0(node.operands[1]);
      case Op::add_: return is_from_0(node.operands[0]) && is_from_0(node.operands[1]);
      default: return false;
    }
  }

  bool is_number(ExprId id) const {
    const auto value = fold_real(dag_, id);
    return value && *value != 0;
  }

  bool is_power(const Node& node) const {
    if (!node.is(Op::pow_)) return false;
    const auto exponent = fold_real(dag_, node.operands[1]);
    return exponent && *exponent > 0;
  }

  const Dag& dag_;
  std::vector<ExprId> zeros_;
};

}  // namespace

std::optional<double> value_of_part(const Dag& dag, ExprId root, double term, double unit) {
  return Substitution(dag, term, unit).of(root);
}

bool vanish_together(const Dag& dag, const Quotient& quotient) {
  return quotient.exponential ? vanish_on_line(dag, quotient) : Forms(dag).vanish(quotient);
}

}  // namespace attn::ir
