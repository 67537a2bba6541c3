#include "compiler/sema/quotient.h"

#include <map>
#include <set>
#include <vector>

namespace attn::sema {
namespace {

using ir::Dag;
using ir::ExprId;
using ir::Node;
using ir::Op;

bool is_exponential(Op op) { return op == Op::exp_ || op == Op::expm1_; }

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

  // Collects arguments of exponentials that may grow; false where something else grows.
  bool collect(ExprId id, std::set<ExprId>& arguments) {
    if (!reads_score(id) || !seen_.insert(id).second) return true;
    const Node& node = dag_[id];
    if (is_exponential(node.op) && !is_at_most_0(node.operands[0])) {
      arguments.insert(node.operands[0]);
      return true;
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
      case Op::tanh_:
      case Op::pow_: return operand(0);
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

class Search {
 public:
  Search(ir::Attention& attention, ExprId score, NoQuotient& no)
      : dag_(attention.dag), score_(score), no_(no), parts_(attention.dag, score) {}

  std::optional<FoundQuotient> run(ExprId numerator, ExprId denominator) {
    std::set<ExprId> arguments;
    for (const ExprId root : {numerator, denominator}) {
      of_denominator_ = root == denominator;
      if (!parts_.collect(root, arguments)) {
        return fail("a power of 2, or a power with a score in its exponent, may overflow",
                    "write it with `exp`, whose largest value along the row the kernels subtract");
      }
    }
    if (arguments.size() > 1) {
      return fail("exponentials of different scores have no common factor that keeps both finite",
                  "use one `exp(..)`; what is inside may be any score");
    }
    FoundQuotient found{score_, {.exponential = !arguments.empty()}};
    if (found.quotient.exponential) found.score = *arguments.begin();
    if (!make(numerator, false, found) || !make(denominator, true, found)) return std::nullopt;
    if (!Positive(dag_, found.quotient.exponential).of(found.quotient.g)) {
      return fail("the sum is not proven to be positive: its terms may be negative",
                  "take `abs(..)`, `relu(..)` or `exp(..)` of them");
    }
    return found;
  }

 private:
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
      fail("a weight over a sum is a function of the score and of constants alone",
           "put what depends on indexes, tensors and params into a `score` clause");
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
  return Search(attention, score, no).run(numerator, denominator);
}

}  // namespace attn::sema
