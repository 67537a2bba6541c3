#include "compiler/gradient/differentiate.h"

#include <algorithm>

#include "compiler/gradient/rules.h"
#include "runtime/base/check.h"

namespace attn::gradient {
namespace {

using ir::ExprId;
using ir::Op;

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

  // The derivative by the leaf; nullopt if it is 0 everywhere.
  std::optional<ExprId> by(ExprId leaf) {
    tangents_.assign(root_ + std::size_t{1}, std::nullopt);
    for (const ExprId id : below_) {
      if (id == leaf) {
        tangents_[id] = Tangent{};
      } else if (depends(id)) {
        tangents_[id] = tangent_of(dag_, id, tangents_, builder_);
      }
    }
    if (!tangents_[root_]) return std::nullopt;
    return builder_.expression(tangents_[root_]);
  }

 private:
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

std::vector<Gather> gathers(ir::Dag& dag, ExprId root, std::string_view tensor) {
  Differentiator differentiator(dag, root);
  std::vector<Gather> found;
  for (const ExprId load : differentiator.loads_of(tensor)) {
    if (const auto local = differentiator.by(load)) found.push_back({load, *local});
  }
  return found;
}

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
  return !gathers(dag, attention.score, tensor).empty() ||
         (attention.sink && !gathers(dag, *attention.sink, tensor).empty());
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

Derivatives differentiate(const ir::Attention& attention) {
  Derivatives result{attention, 0, {}};
  ir::Dag& dag = result.attention.dag;
  result.score = derivative(dag, attention.score, dag.leaf(Op::score_));
  for (const std::string& name : wanted_gradients(attention)) {
    const ir::CapturedTensor* tensor = attention.find_tensor(name);
    if (tensor == nullptr || !tensor->learned) continue;
    TensorGradient& gradient = result.tensors.emplace_back();
    gradient.tensor = name;
    gradient.score = gathers(dag, attention.score, name);
    if (attention.sink) gradient.sink = gathers(dag, *attention.sink, name);
  }
  return result;
}

}  // namespace attn::gradient
