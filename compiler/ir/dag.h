// A hash-consed, typed expression DAG: equal expressions have equal ids, and ids of operands are
// smaller than the id of their user, so ascending order is an evaluation order.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "compiler/ir/op.h"
#include "runtime/base/source_pos.h"

namespace attn::ir {

using ExprId = std::uint32_t;
using attn::SourcePos;

// What a node carries besides its operands, by its op's AttributeKind.
using Attribute = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

struct Node {
  Op op;
  Type type;
  std::vector<ExprId> operands;
  Attribute attribute;
  SourcePos pos;  // where it was first written; not part of identity

  bool is(Op other) const { return op == other; }
};

// Nodes never move and are never removed: a reference that operator[] or symbol_of gave stays valid
// while more nodes are added, until the Dag is assigned to or destroyed. That is why they are in a
// deque: in a vector `dag.add(op, {dag.integer(1)}, dag[id].pos)` could read freed memory, since
// C++ leaves the order of the arguments open. Copies by value would be safe too, but a node owns
// its operands and symbol, and passes read nodes far more often than they add them.
class Dag {
 public:
  // The node's id, new or existing. Operand count and types must fit the op (ATTN_CHECK): callers
  // that read user input check first with ir::result_type.
  ExprId add(Op op, std::span<const ExprId> operands, Attribute attribute = {}, SourcePos pos = {});
  ExprId add(Op op, std::initializer_list<ExprId> operands, SourcePos pos = {}) {
    return add(op, std::span(operands.begin(), operands.size()), {}, pos);
  }
  // For rule symbol_type (param, load): the declared type is given.
  ExprId add_symbol(Op op, std::string symbol, Type type, std::span<const ExprId> operands = {},
                    SourcePos pos = {});

  ExprId boolean(bool value, SourcePos pos = {});
  ExprId integer(std::int64_t value, SourcePos pos = {});
  ExprId real(double value, SourcePos pos = {});
  ExprId dim(std::string name, SourcePos pos = {});
  ExprId leaf(Op op, SourcePos pos = {});  // score, batch, head, row, column

  const Node& operator[](ExprId id) const { return nodes_[id]; }
  std::size_t size() const { return nodes_.size(); }

  // Constant values; each requires the matching constant op.
  std::int64_t integer_of(ExprId id) const { return std::get<std::int64_t>(nodes_[id].attribute); }
  double real_of(ExprId id) const { return std::get<double>(nodes_[id].attribute); }
  bool boolean_of(ExprId id) const { return std::get<bool>(nodes_[id].attribute); }
  const std::string& symbol_of(ExprId id) const {
    return std::get<std::string>(nodes_[id].attribute);
  }
  bool is_constant(ExprId id) const;

 private:
  // Identity: op, type, operands, attribute (reals by bit pattern).
  using Key = std::tuple<Op, Type, std::vector<ExprId>, std::string>;
  ExprId intern(Node node);

  std::deque<Node> nodes_;
  std::map<Key, ExprId> ids_;
};

// Ids reachable from the roots, ascending (operands before users).
std::vector<ExprId> reachable(const Dag& dag, std::span<const ExprId> roots);

// The expression in the specification language's own syntax, with as few parentheses as it needs.
// The row is `q_raw`. After a thousand operations the rest of it is "...".
std::string to_source(const Dag& dag, ExprId id);

}  // namespace attn::ir
