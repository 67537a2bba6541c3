#include "compiler/sema/quotient.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "compiler/ir/parts.h"

namespace attn::sema {
namespace {

using ir::Dag;
using ir::ExprId;
using ir::Node;
using ir::Op;

bool is_exponential(Op op) { return op == Op::exp_ || op == Op::expm1_; }

// Arguments of exponentials.
struct Arguments {
  std::set<ExprId> growing;
  std::set<ExprId> at_most_0;  // -abs(..), whose exponential needs no factor to stay finite
};

// What the weights are made of, from their roots down to exponentials of scores.
class Parts {
 public:
  Parts(const Dag& dag, ExprId score) : dag_(dag), score_(score) {}

  bool reads_score(ExprId id) {
    if (const auto known = scored_.find(id); known != scored_.end()) return known->second;
    bool reads = id == score_ || dag_[id].is(Op::score_);
    for (const ExprId operand : dag_[id].operands) reads = reads_score(operand) || reads;
    return scored_[id] = reads;
  }

  // Collects arguments of exponentials; false where something else grows.
  bool collect(ExprId id, Arguments& arguments) {
    if (!reads_score(id) || !seen_.insert(id).second) return true;
    const Node& node = dag_[id];
    if (is_exponential(node.op)) {
      const ExprId argument = node.operands[0];
      if (!is_at_most_0(argument)) return arguments.growing.insert(argument), true;
      arguments.at_most_0.insert(argument);
    }
    if (node.is(Op::exp2_)) return false;
    if (node.is(Op::pow_) && reads_score(node.operands[1])) return false;
    bool fits = true;
    for (const ExprId operand : node.operands) fits = collect(operand, arguments) && fits;
    return fits;
  }

 private:
  bool is_at_most_0(ExprId id) const {
    return dag_[id].is(Op::neg_) && dag_[dag_[id].operands[0]].is(Op::abs_);
  }

  const Dag& dag_;
  ExprId score_;  // which may ignore the products
  std::map<ExprId, bool> scored_;
  std::set<ExprId> seen_;
};

// An expression of the term and the unit, and its degree in both: 0 or 1.
struct Part {
  ExprId id = 0;
  int degree = 0;
  bool varies = false;  // reads the term
};

// Rewrites expressions of exp(x) to those of a term and a unit.
class Homogeneous {
 public:
  Homogeneous(Dag& dag, ExprId argument, Parts& parts)
      : dag_(dag), argument_(argument), parts_(parts) {}

  // Returns it with the degree 1; nullopt if the expression has none.
  std::optional<ExprId> run(ExprId root) {
    const std::optional<Part> part = of(root);
    if (!part) return std::nullopt;
    return lifted(*part).id;
  }

 private:
  std::optional<Part> of(ExprId id) {
    if (!parts_.reads_score(id)) return Part{id, 0};
    if (const auto known = made_.find(id); known != made_.end()) return known->second;
    const std::optional<Part> part = made(dag_[id]);
    made_[id] = part;
    return part;
  }

  std::optional<Part> made(const Node& node) {
    const ExprId term = dag_.leaf(Op::score_, node.pos);
    if (is_exponential(node.op) && node.operands[0] == argument_) {
      if (node.is(Op::exp_)) return Part{term, 1, true};
      return Part{dag_.add(Op::sub_, {term, dag_.leaf(Op::unit_, node.pos)}, node.pos), 1, true};
    }
    if (node.operands.empty()) return std::nullopt;  // the score itself
    std::vector<Part> operands;
    for (const ExprId operand : node.operands) {
      const std::optional<Part> part = of(operand);
      if (!part) return std::nullopt;
      operands.push_back(*part);
    }
    const std::optional<int> degree = degree_of(node, operands);
    if (!degree) return std::nullopt;
    std::vector<ExprId> ids;
    for (const Part& part : operands) ids.push_back(part.id);
    return Part{dag_.add(node.op, ids, node.attribute, node.pos), *degree, true};
  }

  // Makes operands of one degree where they have to be.
  std::optional<int> degree_of(const Node& node, std::vector<Part>& operands) {
    switch (node.op) {
      case Op::neg_:
      case Op::abs_: return operands[0].degree;
      case Op::add_:
      case Op::sub_:
      case Op::min_:
      case Op::max_: return common(operands, 0);
      case Op::select_: return common(operands, 1);
      case Op::lt_:
      case Op::le_:
      case Op::gt_:
      case Op::ge_:
      case Op::eq_:
      case Op::ne_: return (void)common(operands, 0), 0;
      case Op::mul_: return product(operands[0].degree + operands[1].degree);
      case Op::div_: return operands[1].varies ? std::nullopt : std::optional(operands[0].degree);
      default: break;
    }
    for (const Part& part : operands) {
      if (part.degree != 0) return std::nullopt;
    }
    return 0;
  }

  static std::optional<int> product(int degree) {
    return degree > 1 ? std::nullopt : std::optional(degree);
  }

  int common(std::vector<Part>& operands, std::size_t from) {
    int degree = 0;
    for (std::size_t i = from; i < operands.size(); ++i)
      degree = std::max(degree, operands[i].degree);
    if (degree == 0) return 0;
    for (std::size_t i = from; i < operands.size(); ++i) operands[i] = lifted(operands[i]);
    return degree;
  }

  Part lifted(const Part& part) {
    if (part.degree == 1) return part;
    const Node& node = dag_[part.id];
    if (node.is(Op::const_real_) && dag_.real_of(part.id) == 0) return {part.id, 1};
    const ExprId unit = dag_.leaf(Op::unit_, node.pos);
    if (node.is(Op::const_real_) && dag_.real_of(part.id) == 1) return {unit, 1};
    return {dag_.add(Op::mul_, {part.id, unit}, node.pos), 1, part.varies};
  }

  Dag& dag_;
  ExprId argument_;
  Parts& parts_;
  std::map<ExprId, std::optional<Part>> made_;
};

// Rewrites expressions of the last score to those of the term; none if another score is read.
class OfScore {
 public:
  OfScore(Dag& dag, ExprId score, Parts& parts) : dag_(dag), score_(score), parts_(parts) {}

  std::optional<ExprId> run(ExprId id) {
    if (id == score_) return dag_.leaf(Op::score_);
    if (!parts_.reads_score(id)) return id;
    if (const auto known = made_.find(id); known != made_.end()) return known->second;
    const Node node = dag_[id];  // a copy: nodes are added
    if (node.operands.empty()) return std::nullopt;
    std::vector<ExprId> operands;
    for (const ExprId operand : node.operands) {
      const std::optional<ExprId> made = run(operand);
      if (!made) return std::nullopt;
      operands.push_back(*made);
    }
    return made_[id] = dag_.add_like(node, operands);
  }

 private:
  Dag& dag_;
  ExprId score_;
  Parts& parts_;
  std::map<ExprId, ExprId> made_;
};

// Whether a real is at least 0 wherever it is a number.
class Positive {
 public:
  Positive(const Dag& dag, bool exponential) : dag_(dag), exponential_(exponential) {}

  bool of(ExprId id) const {
    const Node& node = dag_[id];
    const auto operand = [&](std::size_t i) { return of(node.operands[i]); };
    switch (node.op) {
      case Op::const_real_: return dag_.real_of(id) >= 0;
      case Op::score_: return exponential_;
      case Op::unit_:
      case Op::abs_:
      case Op::exp_:
      case Op::exp2_:
      case Op::sigmoid_:
      case Op::sqrt_:
      case Op::rsqrt_: return true;
      case Op::max_: return operand(0) || operand(1);
      case Op::min_:
      case Op::add_:
      case Op::div_: return operand(0) && operand(1);
      case Op::mul_: return node.operands[0] == node.operands[1] || (operand(0) && operand(1));
      case Op::select_: return operand(1) && operand(2);
      case Op::log1p_:
      case Op::expm1_:
      case Op::tanh_: return operand(0);
      case Op::pow_: return operand(0) || is_even(node.operands[1]);
      case Op::log_: return is_from_1(node.operands[0]);
      default: return false;
    }
  }

 private:
  // 1 + x of a positive x, as in softplus.
  bool is_from_1(ExprId id) const {
    const Node& node = dag_[id];
    if (!node.is(Op::add_)) return false;
    const auto is_one = [&](ExprId x) {
      return dag_[x].is(Op::const_real_) && dag_.real_of(x) >= 1;
    };
    return (is_one(node.operands[0]) && of(node.operands[1])) ||
           (is_one(node.operands[1]) && of(node.operands[0]));
  }

  bool is_even(ExprId exponent) const {
    const auto value = ir::fold_real(dag_, exponent);
    return value && std::fmod(*value, 2) == 0;
  }

  const Dag& dag_;
  bool exponential_;
};

// Whether the expression reads the term, the unit and constants alone.
bool is_of_term(const Dag& dag, ExprId root) {
  const ExprId roots[] = {root};
  for (const ExprId id : ir::reachable(dag, roots)) {
    constexpr Op kOthers[] = {Op::batch_, Op::head_, Op::row_, Op::column_, Op::load_, Op::param_};
    for (const Op op : kOthers) {
      if (dag[id].is(op)) return false;
    }
  }
  return true;
}

constexpr double kMostOfF32 = std::numeric_limits<float>::max();
constexpr double kLeastOfF32 = std::numeric_limits<float>::min();
// Bounds of the parts where the larger of the term and the unit is 1: what is left of f32 is for
// sums along rows, and for products with v.
constexpr double kMostOfPart = 1e30, kLeastOfPart = 1e-30;

// Why a part is not computed in f32, or a sum is lost where exponentials are divided by the largest
// one of the row. Empty if nothing is.
class Range {
 public:
  Range(const Dag& dag, const ir::Quotient& quotient) : dag_(dag), quotient_(quotient) {}

  std::string why_not(ExprId part) const {
    std::string why = of_numbers(part);
    if (why.empty() && quotient_.exponential) why = of_values(part);
    if (why.empty() && quotient_.exponential && part == quotient_.g) why = of_sum();
    return why;
  }

 private:
  std::string of_numbers(ExprId part) const {
    const ExprId roots[] = {part};
    for (const ExprId id : ir::reachable(dag_, roots)) {
      const auto number = ir::fold_real(dag_, id);
      if (!number || *number == 0) continue;
      const double size = std::abs(*number);
      const bool is_lost = size < kLeastOfF32, is_infinite = std::isinf(size);
      if (is_infinite && !quotient_.exponential) continue;
      if (size > kMostOfF32 || is_lost) {
        return fmt::format("weights are computed in f32, where {} is {}", *number,
                           is_lost ? "0" : "infinite");
      }
    }
    return "";
  }

  // Values are nullopt where they are not finite.
  std::string of_values(ExprId part) const {
    constexpr std::pair<double, double> kPlaces[] = {{1, 0}, {0, 1}, {1, 1}};
    for (const auto& [term, unit] : kPlaces) {
      const auto value = ir::value_of_part(dag_, part, term, unit);
      const double size = value ? std::abs(*value) : std::numeric_limits<double>::infinity();
      if (size > kMostOfPart) return "it may exceed f32, in which weights are computed";
      if (part == quotient_.g && size != 0 && size < kLeastOfPart)
        return "the sum may be too small for f32, in which weights are computed";
    }
    return "";
  }

  double sum_at(double term, double unit) const {
    return ir::value_of_part(dag_, quotient_.g, term, unit).value_or(0);
  }

  // A sum of terms that are not 0 must not become 0, neither where the largest exponential exceeds
  // all numbers beside it, nor where it is far below them.
  std::string of_sum() const {
    if (sum_at(1, 0) <= 0) {
      return "the sum does not grow with exp(score): at large scores it is lost beside the largest "
             "exponential, by which all are divided";
    }
    const ExprId roots[] = {quotient_.f, quotient_.g};
    bool reads_unit = false;
    for (const ExprId id : ir::reachable(dag_, roots)) reads_unit |= dag_[id].is(Op::unit_);
    if (!reads_unit || sum_at(0, 1) > 0) return "";
    constexpr double kSmall = 0x1p-40, kSmallest = 1e-300;
    if (sum_at(kSmall, 1) == 0 && sum_at(kSmallest, 1) == 0) return "";
    return "the sum vanishes with exp(score): at scores far below 0 it is lost beside the numbers "
           "of the weight";
  }

  const Dag& dag_;
  const ir::Quotient& quotient_;
};

class Search {
 public:
  Search(ir::Attention& attention, ExprId score, NoQuotient& no)
      : dag_(attention.dag), score_(score), no_(no), parts_(attention.dag, score) {}

  std::optional<FoundQuotient> run(ExprId numerator, ExprId denominator) {
    Arguments arguments;
    for (const ExprId root : {numerator, denominator}) {
      of_denominator_ = root == denominator;
      if (!parts_.collect(root, arguments)) {
        return fail("a power of 2, or a power with a score in its exponent, may overflow",
                    "write it with `exp`, whose largest value along the row the kernels subtract");
      }
      if (arguments.growing.size() > 1) {
        return fail("exponentials of different scores have no common factor that keeps both finite",
                    "use one `exp(..)`; what is inside may be any score");
      }
    }
    if (arguments.growing.empty() && arguments.at_most_0.size() == 1) {
      if (const auto found = made(numerator, denominator, arguments.at_most_0)) return found;
    }
    return made(numerator, denominator, arguments.growing);
  }

 private:
  // `arguments`: none, or one.
  std::optional<FoundQuotient> made(ExprId numerator, ExprId denominator,
                                    const std::set<ExprId>& arguments) {
    FoundQuotient found{score_, {.exponential = !arguments.empty()}};
    if (found.quotient.exponential) found.score = *arguments.begin();
    if (!make(numerator, false, found) || !make(denominator, true, found)) return std::nullopt;
    if (!Positive(dag_, found.quotient.exponential).of(found.quotient.g)) {
      return fail("the sum is not proven to be positive: its terms may be negative",
                  "take `abs(..)`, `relu(..)` or `exp(..)` of them");
    }
    for (const ExprId part : {found.quotient.f, found.quotient.g}) {
      of_denominator_ = part == found.quotient.g;
      std::string why = Range(dag_, found.quotient).why_not(part);
      if (!why.empty()) {
        return fail(std::move(why),
                    "use smaller numbers, or a sum with both `exp(..)` and a number in it");
      }
    }
    return found;
  }

  std::optional<FoundQuotient> fail(std::string why, std::string help) {
    no_ = {of_denominator_, std::move(why), std::move(help)};
    return std::nullopt;
  }

  bool make(ExprId root, bool of_denominator, FoundQuotient& found) {
    of_denominator_ = of_denominator;
    const bool exponential = found.quotient.exponential;
    const std::optional<ExprId> made = exponential
                                           ? Homogeneous(dag_, found.score, parts_).run(root)
                                           : OfScore(dag_, score_, parts_).run(root);
    if (!made && exponential) {
      fail("this is not proven to be in proportion to exp(score): it might overflow",
           "combine `exp(..)` and numbers by sums, factors, `abs`, `relu`, `min`, `max` and "
           "`where` alone");
      return false;
    }
    if (!made) {
      fail("this reads an earlier score than the last one", "use `score`, which is the last one");
      return false;
    }
    if (!is_of_term(dag_, *made)) {
      fail(
          "a weight over a sum is a function of the score and of constants alone",
          "a factor of all weights cannot be written so: scale v, or `o`; what is added to a score "
          "belongs in a `score` clause");
      return false;
    }
    (of_denominator ? found.quotient.g : found.quotient.f) = *made;
    return true;
  }

  Dag& dag_;
  ExprId score_;
  NoQuotient& no_;
  Parts parts_;
  bool of_denominator_ = false;
};

}  // namespace

std::optional<FoundQuotient> find_quotient(ir::Attention& attention, ExprId score, ExprId numerator,
                                           ExprId denominator, NoQuotient& no) {
  const auto found = Search(attention, score, no).run(numerator, denominator);
  if (found || !attention.dag[score].is(Op::const_real_)) return found;
  // A score that is a number has the node of this number, wherever else it stands. Weights are then
  // those of any score.
  NoQuotient ignored;
  return Search(attention, attention.dag.leaf(Op::score_), ignored).run(numerator, denominator);
}

}  // namespace attn::sema
