#include "compiler/masks/effects.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "compiler/ir/value.h"

namespace attn::masks {
namespace {

using ir::ExprId;
using ir::Op;

constexpr std::size_t kMostSummands = 64;  // that are looked at, so that the work stays linear
constexpr double kHides = 1e4;  // a summand from here on may be meant to hide a row, as -inf does

// Whether each expression of the dag depends on the product of q and k or on the column.
std::vector<bool> varying_along_rows(const ir::Dag& dag) {
  std::vector<bool> varies(dag.size());
  for (ExprId id = 0; id < varies.size(); ++id) {
    const ir::Node& node = dag[id];
    varies[id] = node.is(Op::score_) || node.is(Op::column_) ||
                 std::ranges::any_of(node.operands, [&](ExprId each) { return varies[each]; });
  }
  return varies;
}

using Value = std::optional<ir::Constant>;

Value value_of(const ir::Dag& dag, ExprId id, const std::vector<Value>& values) {
  if (Value own = ir::constant_of(dag, id)) return own;
  std::vector<ir::Constant> operands;
  for (const ExprId each : dag[id].operands) {
    if (!values[each]) return std::nullopt;
    operands.push_back(*values[each]);
  }
  return ir::fold(dag[id].op, operands);
}

bool is_huge(const ir::Constant& value) {
  if (const auto* real = std::get_if<double>(&value)) return !(std::abs(*real) < kHides);
  const auto* integer = std::get_if<std::int64_t>(&value);
  return integer && !(std::abs(static_cast<double>(*integer)) < kHides);
}

// Whether each expression of the dag may be chosen or made to hide a row: it has a constant that is
// huge or not finite, not counting those of conditions and indexes, or a logarithm.
std::vector<bool> hiding(const ir::Dag& dag) {
  std::vector<Value> values(dag.size());
  std::vector<bool> hides(dag.size());
  for (ExprId id = 0; id < hides.size(); ++id) {
    const ir::Node& node = dag[id];
    values[id] = value_of(dag, id, values);
    if (values[id]) {
      hides[id] = is_huge(*values[id]);
    } else if (node.type != ir::Type::boolean && !node.is(Op::load_)) {
      hides[id] = node.is(Op::log_) || node.is(Op::log2_) || node.is(Op::log1p_) ||
                  std::ranges::any_of(node.operands, [&](ExprId each) { return hides[each]; });
    }
  }
  return hides;
}

// What the score is the sum or difference of, ascending.
std::vector<ExprId> summands_of(const ir::Attention& attention) {
  std::vector<bool> in_sum(attention.score + 1);
  in_sum[attention.score] = true;
  std::vector<ExprId> summands;
  for (ExprId id = attention.score + 1; id-- > 0;) {
    if (!in_sum[id]) continue;
    const ir::Node& node = attention.dag[id];
    const bool is_sum = node.is(Op::add_) || node.is(Op::sub_) || node.is(Op::neg_);
    if (!is_sum) summands.push_back(id);
    if (is_sum) std::ranges::for_each(node.operands, [&](ExprId each) { in_sum[each] = true; });
  }
  std::ranges::reverse(summands);
  return summands;
}

std::vector<std::string> names_in(const ir::Dag& dag, std::span<const ExprId> roots) {
  std::vector<std::string> names;
  for (const ExprId id : ir::reachable(dag, roots)) {
    if (dag[id].is(Op::load_) || dag[id].is(Op::param_)) names.push_back(dag.symbol_of(id));
  }
  return names;
}

}  // namespace

bool ignores_products(const ir::Attention& attention) {
  const ir::Dag& dag = attention.dag;
  const ExprId roots[] = {attention.score};
  const std::vector<ExprId> below = ir::reachable(dag, roots);
  const auto is_given = [&](ExprId id) {  // by the place of the score, or at run time
    constexpr Op kGiven[] = {Op::batch_, Op::head_, Op::row_, Op::column_, Op::param_, Op::load_};
    return std::ranges::any_of(kGiven, [&](Op op) { return dag[id].is(op); });
  };
  return std::ranges::any_of(below, is_given) &&
         std::ranges::none_of(below, [&](ExprId id) { return dag[id].is(Op::score_); });
}

std::vector<Ineffective> ineffective(const ir::Attention& attention) {
  const ir::Dag& dag = attention.dag;
  if (attention.sink || !attention.is_softmax()) return {};
  if (attention.dims.get(ir::Dim::Skv).value_or(2) <= 1) return {};

  const std::vector<bool> varies = varying_along_rows(dag), hides = hiding(dag);
  std::vector<ExprId> same_for_all, others = attention.roots();
  std::erase(others, attention.score);
  for (const ExprId each : summands_of(attention)) {
    (varies[each] || hides[each] ? others : same_for_all).push_back(each);
  }
  if (same_for_all.size() > kMostSummands) same_for_all.resize(kMostSummands);
  const std::vector<std::string> elsewhere = names_in(dag, others);
  std::set<std::string> seen(elsewhere.begin(), elsewhere.end());
  std::vector<Ineffective> found;
  for (const ExprId term : same_for_all) {
    Ineffective one{term, names_in(dag, std::span(&term, 1))};
    std::erase_if(one.names, [&](const std::string& name) { return !seen.insert(name).second; });
    if (!one.names.empty()) found.push_back(std::move(one));
  }
  return found;
}

}  // namespace attn::masks
