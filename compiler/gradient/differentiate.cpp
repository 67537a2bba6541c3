#include "compiler/gradient/differentiate.h"

#include <algorithm>
#include <map>
#include <numbers>
#include <span>

#include "compiler/gradient/formula.h"
#include "runtime/base/check.h"

namespace attn::gradient {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;

// The rules of one node: y = f(x) or y = f(a, b).
class NodeRules {
 public:
  NodeRules(ir::Dag& dag, ExprId id, std::span<const MaybeTangent> tangents, TangentBuilder& build)
      : dag_(dag), y_(id), node_(dag[id]), tangents_(tangents), build_(build) {
    build_.set_pos(node_.pos);
  }

  MaybeTangent run() {
    switch (node_.op) {
      case Op::add_:
        if (const auto x = softplus_of()) return times(tangents_[*x], make(Op::sigmoid_, {*x}));
        return build_.plus(d(0), d(1));
      case Op::sub_: return build_.plus(d(0), negative(d(1)));
      case Op::mul_: return product();
      case Op::div_: return quotient();
      case Op::mod_: return build_.plus(d(0), negative(times(d(1), floor_of_quotient())));
      case Op::min_: return extremum(Op::lt_);
      case Op::max_: return extremum(Op::gt_);
      case Op::neg_: return negative(d(0));
      case Op::abs_: return magnitude();
      case Op::pow_: return power();
      case Op::select_: return build_.where(operand(0), d(1), d(2));
      case Op::floordiv_:
      case Op::floor_:
      case Op::ceil_: return std::nullopt;
      default: return real_function();
    }
  }

 private:
  const MaybeTangent& d(std::size_t index) const { return tangents_[operand(index)]; }
  ExprId operand(std::size_t index) const { return node_.operands[index]; }
  ExprId make(Op op, const std::vector<ExprId>& operands) { return build_.make(op, operands); }
  ExprId one() { return build_.real(1); }
  MaybeTangent times(const MaybeTangent& x, ExprId factor) { return build_.times(x, factor); }
  MaybeTangent negative(const MaybeTangent& x) { return build_.scaled(x, -1); }

  // The derivative that real_functions.def says, of the operands x and y and the value f.
  MaybeTangent real_function() {
    [[maybe_unused]] const Formula x = Formula::of(node_.operands.front());
    [[maybe_unused]] const Formula y = Formula::of(node_.operands.back()), f = Formula::of(y_);
    const Derivative dx = Derivative::of(tangents_[node_.operands.front()]);
    const Derivative dy = Derivative::of(tangents_[node_.operands.back()]);
    switch (node_.op) {
#define ATTN_REAL_FUNCTION(name, id, operands, doc, value, derivative, ...) \
  case Op::name##_:                                                         \
    return (derivative)(build_);
#include "compiler/ir/real_functions.def"
#undef ATTN_REAL_FUNCTION
      default: check_failed(__FILE__, __LINE__, "derivative", ir::info(node_.op).name);
    }
  }

  MaybeTangent product() {
    const ExprId a = operand(0), b = operand(1);
    if (a == b) return build_.scaled(times(d(0), a), 2);
    return build_.plus(times(d(0), b), times(d(1), a));
  }

  MaybeTangent quotient() {
    const MaybeTangent by_divisor =
        d(1) ? negative(times(d(1), make(Op::div_, {y_, operand(1)}))) : std::nullopt;
    return build_.plus(build_.over(d(0), operand(1)), by_divisor);
  }

  ExprId floor_of_quotient() { return make(Op::floordiv_, {operand(0), operand(1)}); }

  // `wins` holds where the first operand is the result; equal operands share the derivative.
  MaybeTangent extremum(Op wins) {
    const ExprId a = operand(0), b = operand(1);
    if (a == b) return d(0);
    const MaybeTangent half = build_.divided(build_.plus(d(0), d(1)), 2);
    return build_.where(make(wins, {a, b}), d(0), build_.where(make(Op::eq_, {a, b}), half, d(1)));
  }

  MaybeTangent magnitude() {
    const ExprId x = operand(0), zero = build_.real(0);
    const MaybeTangent below = build_.where(make(Op::lt_, {x, zero}), negative(d(0)), std::nullopt);
    return build_.where(make(Op::gt_, {x, zero}), d(0), below);
  }

  MaybeTangent power() { return build_.plus(power_by_base(), power_by_exponent()); }

  MaybeTangent power_by_base() {
    if (!d(0)) return std::nullopt;
    const ExprId x = operand(0), n = operand(1);
    const bool known = dag_[n].is(Op::const_real_);
    if (known && dag_.real_of(n) == 0) return std::nullopt;
    const ExprId less = make(Op::pow_, {x, make(Op::sub_, {n, one()})});
    const MaybeTangent result = times(times(d(0), less), n);
    if (known) return result;
    return build_.where(make(Op::eq_, {n, build_.real(0)}), std::nullopt, result);
  }

  MaybeTangent power_by_exponent() {
    if (!d(1)) return std::nullopt;
    const ExprId x = operand(0), n = operand(1), zero = build_.real(0);
    const MaybeTangent result = times(times(d(1), y_), make(Op::log_, {x}));
    const ExprId flat = make(Op::and_, {make(Op::eq_, {x, zero}), make(Op::ge_, {n, zero})});
    return build_.where(flat, std::nullopt, result);
  }

  bool is_constant(ExprId id, double value) const {
    return dag_[id].is(Op::const_real_) && dag_.real_of(id) == value;
  }

  // The x of max(x, 0) + log(1 + exp(-|x|)), whose derivative is sigmoid(x).
  std::optional<ExprId> softplus_of() const {
    const Node& most = dag_[operand(0)];
    if (!most.is(Op::max_) || !is_constant(most.operands[1], 0)) return std::nullopt;
    ExprId at = operand(1);
    for (const Op op : {Op::log_, Op::add_, Op::exp_, Op::neg_, Op::abs_}) {
      if (!dag_[at].is(op)) return std::nullopt;
      if (op == Op::add_ && !is_constant(dag_[at].operands[0], 1)) return std::nullopt;
      at = dag_[at].operands.back();
    }
    return at == most.operands[0] ? std::optional(at) : std::nullopt;
  }

  ir::Dag& dag_;
  const ExprId y_;
  const Node node_;
  std::span<const MaybeTangent> tangents_;
  TangentBuilder& build_;
};

// The derivative of the real node `id` from those of the nodes below it, by id. At least one of its
// operands must have one; nodes that are not real have none.
MaybeTangent tangent_of(ir::Dag& dag, ExprId id, std::span<const MaybeTangent> tangents,
                        TangentBuilder& builder) {
  return NodeRules(dag, id, tangents, builder).run();
}

// Forward mode, from one leaf to the root: branches that a select does not take are left out on the
// way, where reverse mode would multiply by them.
class Differentiator {
 public:
  Differentiator(ir::Dag& dag, ExprId root) : dag_(dag), builder_(dag), root_(root) {
    const ExprId roots[] = {root};
    below_ = ir::reachable(dag, roots);
  }

  // The loads of the tensor below the root.
  std::vector<ExprId> loads_of(std::string_view tensor) const {
    std::vector<ExprId> loads;
    for (const ExprId id : below_) {
      if (dag_[id].is(Op::load_) && dag_.symbol_of(id) == tensor) loads.push_back(id);
    }
    return loads;
  }

  // The derivative by the leaf; nullopt if it is 0 everywhere. Where many terms have a value that
  // alone depends on the leaf, it is the derivative by that value times its own.
  std::optional<ExprId> by(ExprId leaf) {
    if (const auto between = waist(leaf)) {
      const MaybeTangent outer = tangent(*between, root_), inner = tangent(leaf, *between);
      if (!outer || !inner) return std::nullopt;
      return builder_.expression(chained(builder_.expression(outer), builder_.expression(inner)));
    }
    const MaybeTangent found = tangent(leaf, root_);
    return found ? std::optional(builder_.expression(found)) : std::nullopt;
  }

 private:
  static constexpr int kMany = 8;

  MaybeTangent tangent(ExprId leaf, ExprId root) {
    tangents_.assign(root_ + std::size_t{1}, std::nullopt);
    for (const ExprId id : below_) {
      if (id > root) break;
      if (id == leaf) {
        tangents_[id] = Tangent{};
      } else if (depends(id)) {
        tangents_[id] = tangent_of(dag_, id, tangents_, builder_);
      }
    }
    return tangents_[root];
  }

  // 0 where the outer one is, whatever the inner one is there.
  MaybeTangent chained(ExprId outer, ExprId inner) {
    const ExprId is_zero = builder_.make(Op::eq_, {outer, builder_.real(0)});
    return builder_.where(is_zero, std::nullopt,
                          Tangent{1, 1, builder_.make(Op::mul_, {outer, inner})});
  }

  // The last node on all ways from the leaf to the root that many nodes read. Operands come before
  // what reads them: a node is on all ways if no way from one before leads to one behind.
  std::optional<ExprId> waist(ExprId leaf) const {
    std::map<ExprId, int> readers;  // of nodes that depend on the leaf
    std::map<ExprId, ExprId> last;  // the last reader of each
    readers[leaf] = 0;
    for (const ExprId id : below_) {
      if (dag_[id].type != ir::Type::real) continue;
      for (const ExprId operand : dag_[id].operands) {
        if (!readers.contains(operand)) continue;
        ++readers[operand], last[operand] = id;
        readers.try_emplace(id, 0);
      }
    }
    std::optional<ExprId> found;
    ExprId furthest = leaf;  // that a node before reads
    for (const auto& [id, count] : readers) {
      if (id != leaf && furthest <= id && count >= kMany) found = id;
      if (const auto reader = last.find(id); reader != last.end())
        furthest = std::max(furthest, reader->second);
    }
    return found;
  }

  bool depends(ExprId id) const {
    const ir::Node& node = dag_[id];
    return node.type == ir::Type::real && std::ranges::any_of(node.operands, [&](ExprId operand) {
             return tangents_[operand].has_value();
           });
  }

  ir::Dag& dag_;
  TangentBuilder builder_;
  const ExprId root_;
  std::vector<ExprId> below_;
  std::vector<MaybeTangent> tangents_;  // by id, up to the root
};

}  // namespace

std::vector<Gather> gathers(ir::Dag& dag, ExprId root, std::string_view tensor) {
  Differentiator differentiator(dag, root);
  std::vector<Gather> found;
  for (const ExprId load : differentiator.loads_of(tensor)) {
    if (const auto local = differentiator.by(load)) found.push_back({load, *local});
  }
  return found;
}

namespace {

// The masks, conditions and indexes that depend on nothing learned.
std::vector<ExprId> undifferentiated(const ir::Attention& attention) {
  std::vector<ExprId> roots = attention.masks;
  if (attention.dropout && attention.dropout->keep) roots.push_back(*attention.dropout->keep);
  for (const ExprId id : ir::reachable(attention.dag, attention.roots())) {
    const ir::Node& node = attention.dag[id];
    if (node.is(Op::load_)) roots.insert(roots.end(), node.operands.begin(), node.operands.end());
  }
  return roots;
}

}  // namespace

bool can_learn(const ir::Attention& attention, std::string_view tensor) {
  const ir::CapturedTensor* declared = attention.find_tensor(tensor);
  if (declared == nullptr || ir::value_type(declared->dtype) != ir::Type::real) return false;
  ir::Dag dag = attention.dag;
  for (const ExprId id : ir::reachable(dag, undifferentiated(attention))) {
    if (dag[id].is(Op::load_) && dag.symbol_of(id) == tensor) return false;
  }
  const auto reaches_sum = [&](const ir::KeySum& sum) {
    return !gathers(dag, sum.value, tensor).empty() && can_learn(attention, sum.tensor.name);
  };
  return !gathers(dag, attention.score, tensor).empty() ||
         (attention.sink && !gathers(dag, *attention.sink, tensor).empty()) ||
         (attention.epilogue && !gathers(dag, *attention.epilogue, tensor).empty()) ||
         std::ranges::any_of(attention.sums, reaches_sum);
}

std::vector<std::string> wanted_gradients(const ir::Attention& attention) {
  if (!attention.gradients.empty()) return attention.gradients;
  std::vector<std::string> names = {"q", "k", "v"};
  for (const ir::CapturedTensor& tensor : attention.tensors) {
    if (tensor.learned) names.push_back(tensor.name);
  }
  return names;
}

std::string gradient_name(std::string_view of) {
  const bool operand = of == "q" || of == "k" || of == "v";
  return (operand ? "d" : "d_") + std::string(of);
}

ExprId derivative(ir::Dag& dag, ExprId of, ExprId by) {
  ATTN_CHECK(dag[of].type == ir::Type::real && dag[by].type == ir::Type::real,
             "derivative of or by a non-real expression");
  const auto found = by <= of ? Differentiator(dag, of).by(by) : std::nullopt;
  return found ? *found : dag.real(0);
}

namespace {

// The term of an exponential is its own derivative.
QuotientDerivatives derivatives_of(const ir::Quotient& quotient, ir::Dag& dag) {
  const ExprId term = dag.leaf(Op::score_);
  const auto by_score = [&](ExprId part) {
    const ExprId by_term = derivative(dag, part, term);
    return quotient.exponential ? dag.add(Op::mul_, {by_term, term}) : by_term;
  };
  return {by_score(quotient.f), by_score(quotient.g)};
}

}  // namespace

Derivatives differentiate(const ir::Attention& attention) {
  Derivatives result{attention, 0, {}};
  ir::Dag& dag = result.attention.dag;
  result.score = derivative(dag, attention.score, dag.leaf(Op::score_));
  if (attention.quotient) result.quotient = derivatives_of(*attention.quotient, dag);
  if (attention.epilogue)
    result.epilogue = derivative(dag, *attention.epilogue, dag.leaf(Op::output_));
  for (const std::string& name : wanted_gradients(attention)) {
    const ir::CapturedTensor* tensor = attention.find_tensor(name);
    if (tensor == nullptr || !tensor->learned) continue;
    TensorGradient& gradient = result.tensors.emplace_back();
    gradient.tensor = name;
    gradient.score = gathers(dag, attention.score, name);
    if (attention.sink) gradient.sink = gathers(dag, *attention.sink, name);
    if (attention.epilogue) gradient.epilogue = gathers(dag, *attention.epilogue, name);
  }
  return result;
}

}  // namespace attn::gradient
