#include "compiler/codegen/repetition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace attn::codegen {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;

bool is_associative(const Node& node) {
  switch (node.op) {
    case Op::add_:
    case Op::min_:
    case Op::max_:
    case Op::and_:
    case Op::or_:
    case Op::bit_and_:
    case Op::bit_or_:
    case Op::bit_xor_: return true;
    default: return false;
  }
}

// The terms of all turns, term by term within each turn.
Family joined(const std::vector<const Family*>& terms) {
  Family all;
  for (std::size_t turn = 0; turn < terms.front()->size(); ++turn) {
    for (const Family* term : terms) all.push_back((*term)[turn]);
  }
  return all;
}

}  // namespace

Family operands_of(const ir::Dag& dag, const Family& family, std::size_t operand) {
  Family operands;
  operands.reserve(family.size());
  for (const ExprId id : family) operands.push_back(dag[id].operands[operand]);
  return operands;
}

const Repetition* Repetitions::of(const Family& family) {
  if (!is_associative(dag_[family.front()])) return nullptr;
  auto known = known_.find(family);
  if (known == known_.end()) known = known_.emplace(family, found(family)).first;
  return known->second ? &*known->second : nullptr;
}

// The sums that are parts of one whose terms differ have no more terms of a shape.
std::optional<Repetition> Repetitions::found(const Family& family) {
  std::vector<Family> inner;
  const std::vector<Family> terms = terms_of(family, inner);
  if (terms.size() < kFewestTurns) return std::nullopt;
  std::map<std::size_t, std::vector<const Family*>> by_shape;
  for (const Family& term : terms) by_shape[shape_of(term.front())].push_back(&term);
  std::map<std::size_t, bool> many;
  for (const auto& [shape, same] : by_shape) many[shape] = are_many(same);
  Repetition repetition;
  for (const Family& term : terms) {
    const std::size_t shape = shape_of(term.front());
    const std::vector<const Family*>& same = by_shape[shape];
    if (!many[shape])
      repetition.others.push_back(term);
    else if (same.front() == &term)
      repetition.loops.push_back({same.size(), joined(same)});
  }
  if (!repetition.loops.empty()) return repetition;
  for (Family& part : inner) known_.try_emplace(std::move(part));
  return std::nullopt;
}

// Operations are those that the first two terms do not share.
bool Repetitions::are_many(const std::vector<const Family*>& terms) const {
  if (terms.size() < kFewestTurns) return false;
  const auto nodes_of = [this](const Family* term) {
    const ExprId roots[] = {term->front()};
    return ir::reachable(dag_, roots);
  };
  const std::vector<ExprId> first = nodes_of(terms[0]), second = nodes_of(terms[1]);
  std::vector<ExprId> own;
  std::ranges::set_difference(first, second, std::back_inserter(own));
  return terms.size() * own.size() >= kFewestOperations;
}

// What is used twice in a sum is one of its terms. `inner`: the sums that it is made of.
std::vector<Family> Repetitions::terms_of(const Family& family, std::vector<Family>& inner) const {
  const Op op = dag_[family.front()].op;
  std::map<Family, int> uses = {{family, 1}};
  std::vector<Family> left = {family};
  const auto is_part = [&](const Family& part) {
    return dag_[part.front()].is(op) && !is_given_(part.front());
  };
  while (!left.empty()) {
    const Family sum = std::move(left.back());
    left.pop_back();
    for (std::size_t i = 0; i < 2; ++i) {
      Family operand = operands_of(dag_, sum, i);
      if (is_part(operand) && ++uses[operand] == 1) left.push_back(std::move(operand));
    }
  }
  std::vector<Family> terms;
  left = {family};
  while (!left.empty()) {
    Family next = std::move(left.back());
    left.pop_back();
    const auto found = uses.find(next);
    if (found == uses.end() || found->second > 1) {
      terms.push_back(std::move(next));
      continue;
    }
    left.push_back(operands_of(dag_, next, 1));
    left.push_back(operands_of(dag_, next, 0));
    inner.push_back(std::move(next));
  }
  return terms;
}

std::size_t Repetitions::shape_of(ExprId root) {
  std::vector<ExprId> left = {root};
  while (!left.empty()) {
    const ExprId id = left.back();
    const std::vector<ExprId>& operands = dag_[id].operands;
    const std::size_t before = left.size();
    if (!shapes_.contains(id) && !is_given_(id)) {
      std::ranges::copy_if(operands, std::back_inserter(left),
                           [this](ExprId operand) { return !shapes_.contains(operand); });
    }
    if (left.size() > before) continue;
    left.pop_back();
    if (shapes_.contains(id)) continue;
    std::vector<std::size_t> parts;
    if (!is_given_(id)) {
      for (const ExprId operand : operands) parts.push_back(shapes_.at(operand));
    }
    const Node& node = dag_[id];
    const auto [found, is_new] = numbers_.try_emplace(
        Shape{node.op, node.type, own_shape(id), std::move(parts)}, numbers_.size());
    shapes_.emplace(id, found->second);
  }
  return shapes_.at(root);
}

// What does not follow from the operation and its operands.
std::string Repetitions::own_shape(ExprId id) const {
  const Node& node = dag_[id];
  if (is_given_(id)) return fmt::format("given {}", id);
  if (node.is(Op::const_int_)) return "";
  if (node.is(Op::const_real_)) {
    const double value = dag_.real_of(id);
    return std::isfinite(value) ? "" : fmt::format("{}", value);
  }
  if (const auto* symbol = std::get_if<std::string>(&node.attribute)) return *symbol;
  if (const auto* value = std::get_if<bool>(&node.attribute)) return *value ? "true" : "false";
  if (const auto* index = std::get_if<std::int64_t>(&node.attribute))
    return fmt::format("{}", *index);
  return "";
}

}  // namespace attn::codegen
