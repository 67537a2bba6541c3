// Evaluates the expressions of an attention over one row of scores, node by node. No rewriting and
// no sharing between rows, so that it can be verified by reading.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/reference/bindings.h"

namespace attn::reference {

struct RowPlace {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;  // that the first cell is of
  // The columns of all cells instead, if there are any; they must outlive the run.
  std::span<const std::int64_t> keys{};

  std::int64_t column_of(std::size_t cell) const {
    return keys.empty() ? column + static_cast<std::int64_t>(cell) : keys[cell];
  }
};

// A value, or the node that has none: a gather out of range, a division of integers by 0, a shift
// outside 0..31 (wide: 0..63). What is computed from it has none either, unless the result does not
// depend on it: the branch a select does not take, the other side of `false && x` and `true || x`.
struct Cell {
  double value = 0;  // integers exactly, wide ones as_bits, booleans as 1 and 0
  std::optional<ir::ExprId> fault;
};

// Not thread-safe: use one per thread. The attention and bindings must outlive it.
class RowEvaluator {
 public:
  RowEvaluator(const ir::Attention& attention, const Bindings& bindings,
               std::span<const ir::ExprId> roots);

  // Evaluates every node below the roots; `scores` has the value of ir::Op::score_ for each column,
  // from place.column on, and `unit` that of ir::Op::unit_.
  void run(const RowPlace& place, std::span<const double> scores, double unit = 1);

  // Values of the last run, a cell for each column. `id` must be below one of the roots.
  const std::vector<Cell>& cells(ir::ExprId id) const { return cells_[id]; }

  // Which element of its tensor, counted row-major, a load read in the last run; nullopt if it read
  // none.
  std::optional<std::int64_t> element(ir::ExprId load, std::size_t column) const;

  // Describes the fault of a cell of the last run: "doc[b, kv_idx]: index 1 is 777, outside 0..776,
  // at b 0, h 3, row 5, column 777". Error code: binding.
  Error describe(ir::ExprId fault, std::size_t column) const;

 private:
  Cell evaluate(const ir::Node& node, ir::ExprId id, std::size_t column) const;
  Cell leaf(const ir::Node& node, std::size_t column) const;
  Cell select(const ir::Node& node, std::size_t column) const;
  Cell logic(const ir::Node& node, std::size_t column) const;
  Cell load(const ir::Node& node, ir::ExprId id, std::size_t column) const;
  // `type`: that of the operands.
  Cell compute(const ir::Node& node, ir::ExprId id, ir::Type type, std::size_t column) const;
  const Cell& operand(const ir::Node& node, std::size_t index, std::size_t column) const {
    return cells_[node.operands[index]][column];
  }

  const ir::Attention& attention_;
  const Bindings& bindings_;
  std::vector<ir::ExprId> ids_;
  std::vector<bool> varies_;              // by node: whether columns may differ
  std::vector<std::vector<Cell>> cells_;  // by node
  RowPlace place_;
  double unit_ = 1;
  std::span<const double> scores_;
};

}  // namespace attn::reference
