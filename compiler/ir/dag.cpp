#include "compiler/ir/dag.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "runtime/base/check.h"

namespace attn::ir {
namespace {

AttributeKind kind_of(const Attribute& attribute) {
  constexpr AttributeKind kKinds[] = {AttributeKind::none, AttributeKind::boolean,
                                      AttributeKind::integer, AttributeKind::real,
                                      AttributeKind::symbol};
  return kKinds[attribute.index()];
}

std::string identity_of(const Attribute& attribute) {
  switch (kind_of(attribute)) {
    case AttributeKind::none: return {};
    case AttributeKind::boolean: return std::get<bool>(attribute) ? "1" : "0";
    case AttributeKind::integer: return std::to_string(std::get<std::int64_t>(attribute));
    case AttributeKind::real:
      return fmt::format("{:x}", std::bit_cast<std::uint64_t>(std::get<double>(attribute)));
    case AttributeKind::symbol: return std::get<std::string>(attribute);
  }
  return {};
}

void check_operand_count(Op op, std::size_t count) {
  const int wanted = info(op).operands;
  ATTN_CHECK(wanted < 0 || count == static_cast<std::size_t>(wanted),
             fmt::format("{}: {} operands", info(op).name, count));
}

}  // namespace

bool operator==(const Node& a, const Node& b) {
  return a.op == b.op && a.type == b.type && a.operands == b.operands &&
         identity_of(a.attribute) == identity_of(b.attribute);
}

ExprId Dag::add(Op op, std::span<const ExprId> operands, Attribute attribute, SourcePos pos) {
  check_operand_count(op, operands.size());
  ATTN_CHECK(kind_of(attribute) == info(op).attribute,
             fmt::format("{}: wrong attribute", info(op).name));
  std::vector<Type> types;
  for (ExprId id : operands) {
    ATTN_CHECK(id < nodes_.size(), "operand of another DAG");
    types.push_back(nodes_[id].type);
  }
  const std::optional<Type> type = result_type(info(op).rule, types);
  ATTN_CHECK(type.has_value(), fmt::format("{}: operand types do not fit", info(op).name));
  return intern({op, *type, {operands.begin(), operands.end()}, std::move(attribute), pos});
}

ExprId Dag::add_symbol(Op op, std::string symbol, Type type, std::span<const ExprId> operands,
                       SourcePos pos) {
  ATTN_CHECK(info(op).rule == Rule::symbol_type, "add_symbol: not a symbol");
  check_operand_count(op, operands.size());
  for (ExprId id : operands) {
    ATTN_CHECK(id < nodes_.size() && nodes_[id].type == Type::integer,
               fmt::format("index of {} is not an integer", symbol));
  }
  return intern({op, type, {operands.begin(), operands.end()}, std::move(symbol), pos});
}

ExprId Dag::add_like(const Node& node, std::span<const ExprId> operands) {
  if (info(node.op).rule != Rule::symbol_type)
    return add(node.op, operands, node.attribute, node.pos);
  return add_symbol(node.op, std::get<std::string>(node.attribute), node.type, operands, node.pos);
}

ExprId Dag::boolean(bool value, SourcePos pos) { return add(Op::const_bool_, {}, value, pos); }

ExprId Dag::integer(std::int64_t value, SourcePos pos) {
  return add(Op::const_int_, {}, value, pos);
}

ExprId Dag::wide(std::int64_t value, SourcePos pos) { return add(Op::const_wide_, {}, value, pos); }

ExprId Dag::real(double value, SourcePos pos) {
  // One canonical NaN, so that equal texts are equal nodes.
  if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
  return add(Op::const_real_, {}, value, pos);
}

ExprId Dag::dim(std::string name, SourcePos pos) { return add(Op::dim_, {}, std::move(name), pos); }

ExprId Dag::leaf(Op op, SourcePos pos) { return add(op, {}, {}, pos); }

bool Dag::is_constant(ExprId id) const {
  const Op op = nodes_[id].op;
  return op == Op::const_bool_ || op == Op::const_int_ || op == Op::const_wide_ ||
         op == Op::const_real_;
}

std::size_t Dag::hash() const {
  constexpr std::size_t kFactor = 1099511628211U;
  std::size_t hash = nodes_.size();
  const auto add = [&hash](std::size_t value) { hash = (hash ^ value) * kFactor; };
  for (const Node& node : nodes_) {
    add(static_cast<std::size_t>(node.op));
    add(std::hash<Attribute>{}(node.attribute));
    for (const ExprId operand : node.operands) add(operand);
  }
  return hash;
}

ExprId Dag::intern(Node node) {
  Key key{node.op, node.type, node.operands, identity_of(node.attribute)};
  const auto [entry, is_new] = ids_.try_emplace(std::move(key), static_cast<ExprId>(nodes_.size()));
  if (is_new) nodes_.push_back(std::move(node));
  return entry->second;
}

std::vector<ExprId> reachable(const Dag& dag, std::span<const ExprId> roots) {
  const std::size_t size = roots.empty() ? 0 : std::size_t{*std::ranges::max_element(roots)} + 1;
  std::vector<bool> reached(size);
  for (ExprId root : roots) reached[root] = true;
  std::vector<ExprId> ids;
  for (std::size_t id = size; id-- > 0;) {
    if (!reached[id]) continue;
    ids.push_back(static_cast<ExprId>(id));
    for (ExprId operand : dag[static_cast<ExprId>(id)].operands) reached[operand] = true;
  }
  return {ids.rbegin(), ids.rend()};
}

}  // namespace attn::ir
