#include "compiler/codegen/turns.h"

#include <algorithm>
#include <map>
#include <utility>

#include "compiler/masks/axes.h"

namespace attn::codegen {
namespace {

using ir::ExprId;
using ir::Op;

class Features {
 public:
  explicit Features(const ir::Dag& dag) : dag_(dag), dependence_(dag) {}

  // False if members depend on a score, a row or a column otherwise.
  bool look_at(const Family& family) {
    if (!seen_.insert(family).second) return true;
    const ExprId first = family.front();
    if (std::ranges::all_of(family, [first](ExprId id) { return id == first; })) return add(first);
    for (std::size_t i = 0; i < dag_[first].operands.size(); ++i) {
      if (!look_at(operands_of(dag_, family, i))) return false;
    }
    return true;
  }

  std::set<ExprId> take() && { return std::move(found_); }

 private:
  bool add(ExprId id) {
    const ExprId roots[] = {id};
    const auto is_score = [this](ExprId each) { return dag_[each].is(Op::score_); };
    if (std::ranges::any_of(ir::reachable(dag_, roots), is_score)) return false;
    if (!dependence_[id].row && !dependence_[id].column) return true;
    if (dag_[id].type != ir::Type::real) return false;
    found_.insert(id);
    return true;
  }

  const ir::Dag& dag_;
  masks::Dependence dependence_;
  std::set<Family> seen_;
  std::set<ExprId> found_;
};

// Whether an expression follows from others. `known`: which do.
bool follows(const ir::Dag& dag, masks::Dependence& dependence, ExprId id,
             std::map<ExprId, bool>& known) {
  const auto found = known.find(id);
  if (found != known.end()) return found->second;
  const std::vector<ExprId>& operands = dag[id].operands;
  const bool constant = !dependence[id].row && !dependence[id].column;
  const bool all = !operands.empty() && std::ranges::all_of(operands, [&](ExprId operand) {
    return follows(dag, dependence, operand, known);
  });
  return known[id] = constant || all;
}

}  // namespace

std::optional<std::set<ExprId>> features_of(const ir::Dag& dag, const Family& family) {
  Features features(dag);
  if (!features.look_at(family)) return std::nullopt;
  return std::move(features).take();
}

std::vector<ExprId> independent(const ir::Dag& dag, const std::set<ExprId>& features) {
  masks::Dependence dependence(dag);
  std::set<ExprId> left = features;
  for (const ExprId id : features) {
    left.erase(id);
    std::map<ExprId, bool> known;
    for (const ExprId other : left) known[other] = true;
    if (!follows(dag, dependence, id, known)) left.insert(id);
  }
  return {left.begin(), left.end()};
}

std::optional<TurnedSum> turned_sum(ir::Dag& dag, ExprId root) {
  if (!dag[root].is(Op::add_) || dag[root].type != ir::Type::real) return std::nullopt;
  Repetitions repetitions(dag, [](ExprId) { return false; });
  const Repetition* repetition = repetitions.of({root});
  if (repetition == nullptr || repetition->loops.size() != 1) return std::nullopt;
  TurnedSum sum{repetition->loops.front().members, {}, 0};
  const auto features = features_of(dag, sum.terms);
  if (!features || features->empty()) return std::nullopt;
  sum.features = independent(dag, *features);
  std::optional<ExprId> rest;
  for (const Family& term : repetition->others) {
    rest = rest ? dag.add(Op::add_, {*rest, term.front()}, dag[root].pos) : term.front();
  }
  sum.rest = rest ? *rest : dag.real(0);
  return sum;
}

}  // namespace attn::codegen
