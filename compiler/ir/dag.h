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
  // Reals are compared by bit pattern, as in Dag.
  friend bool operator==(const Node& a, const Node& b);
};

// Nodes never move and are never removed: references returned by operator[] and symbol_of stay
// valid while nodes are added, until the Dag is assigned to or destroyed. This is why nodes are in
// a deque: with a vector, `dag.add(op, {dag.integer(1)}, dag[id].pos)` could read freed memory,
// because C++ does not specify the order of evaluation of arguments.
class Dag {
 public:
  // Returns the id of a new or an equal existing node. Operand count and types must fit the op
  // (ATTN_CHECK): check user input with ir::result_type first.
  ExprId add(Op op, std::span<const ExprId> operands, Attribute attribute = {}, SourcePos pos = {});
  ExprId add(Op op, std::initializer_list<ExprId> operands, SourcePos pos = {}) {
    return add(op, std::span(operands.begin(), operands.size()), {}, pos);
  }
  // Adds a node with rule symbol_type (param, load), whose type is the declared one.
  ExprId add_symbol(Op op, std::string symbol, Type type, std::span<const ExprId> operands = {},
                    SourcePos pos = {});
  // Adds a node that has these operands, and all else of `node`, which may be of another DAG.
  ExprId add_like(const Node& node, std::span<const ExprId> operands);

  ExprId boolean(bool value, SourcePos pos = {});
  ExprId integer(std::int64_t value, SourcePos pos = {});
  ExprId wide(std::int64_t value, SourcePos pos = {});
  ExprId real(double value, SourcePos pos = {});
  ExprId dim(std::string name, SourcePos pos = {});
  ExprId leaf(Op op, SourcePos pos = {});  // score, batch, head, row, column

  const Node& operator[](ExprId id) const { return nodes_[id]; }
  std::size_t size() const { return nodes_.size(); }

  // Constant values; each requires the matching constant op (integer_of also takes const_wide).
  std::int64_t integer_of(ExprId id) const { return std::get<std::int64_t>(nodes_[id].attribute); }
  double real_of(ExprId id) const { return std::get<double>(nodes_[id].attribute); }
  bool boolean_of(ExprId id) const { return std::get<bool>(nodes_[id].attribute); }
  const std::string& symbol_of(ExprId id) const {
    return std::get<std::string>(nodes_[id].attribute);
  }
  bool is_constant(ExprId id) const;

  // The same nodes in the same order, wherever they were written.
  bool operator==(const Dag& other) const { return nodes_ == other.nodes_; }
  std::size_t hash() const;  // equal for equal ones

 private:
  // Identity: op, type, operands, attribute (reals by bit pattern).
  using Key = std::tuple<Op, Type, std::vector<ExprId>, std::string>;
  ExprId intern(Node node);

  std::deque<Node> nodes_;
  std::map<Key, ExprId> ids_;
};

// Ids reachable from the roots, ascending (operands before users).
std::vector<ExprId> reachable(const Dag& dag, std::span<const ExprId> roots);

// The expression in the syntax of the specification language, with minimal parentheses. The row is
// `q_raw`. After a thousand operations the rest is printed as "...".
std::string to_source(const Dag& dag, ExprId id);

}  // namespace attn::ir
