// Evaluates expressions of rows, columns and constants score by score.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/ir/value.h"

namespace attn::masks::testing {

// Values of all expressions at one score; none for what reads a tensor, a param or the score.
class Dense {
 public:
  Dense(const ir::Attention& attention, std::int64_t row, std::int64_t column)
      : values_(attention.dag.size()) {
    const ir::Dag& dag = attention.dag;
    for (ir::ExprId id = 0; id < dag.size(); ++id) {
      const ir::Node& node = dag[id];
      if (node.is(ir::Op::row_))
        values_[id] = row;
      else if (node.is(ir::Op::column_))
        values_[id] = column;
      else if (dag.is_constant(id))
        values_[id] = *ir::constant_of(dag, id);
      else if (!node.operands.empty())
        values_[id] = folded(node);
    }
  }
  bool all(std::span<const ir::ExprId> masks) const {
    return std::ranges::all_of(masks,
                               [this](ir::ExprId id) { return std::get<bool>(*values_[id]); });
  }
  const std::optional<ir::Constant>& operator[](ir::ExprId id) const { return values_[id]; }

 private:
  std::optional<ir::Constant> folded(const ir::Node& node) const {
    std::vector<ir::Constant> operands;
    for (const ir::ExprId operand : node.operands) {
      if (!values_[operand]) return std::nullopt;
      operands.push_back(*values_[operand]);
    }
    return ir::fold(node.op, operands);
  }
  std::vector<std::optional<ir::Constant>> values_;
};

// Whether the masks show each score, row by row.
inline std::vector<bool> shown(const ir::Attention& attention) {
  std::vector<bool> all;
  for (std::int64_t row = 0; row < attention.dims[ir::Dim::Sq]; ++row) {
    for (std::int64_t column = 0; column < attention.dims[ir::Dim::Skv]; ++column) {
      all.push_back(Dense(attention, row, column).all(attention.masks));
    }
  }
  return all;
}

}  // namespace attn::masks::testing
