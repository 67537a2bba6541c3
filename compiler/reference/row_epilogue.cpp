#include "compiler/reference/row_epilogue.h"

namespace attn::reference {

RowEpilogue::RowEpilogue(const Problem& problem)
    : view_(ir::epilogue_view(problem.attention)),
      evaluator_(view_, problem.bindings, std::span(&view_.score, 1)),
      reverse_(view_.dag, evaluator_, view_.score) {
  for (const ir::ExprId id : ir::reachable(view_.dag, std::span(&view_.score, 1))) {
    if (view_.dag[id].is(ir::Op::score_)) leaf_ = id;
  }
}

Status RowEpilogue::run(const RowPlace& place, std::span<double> o) {
  before_.assign(o.begin(), o.end());
  evaluator_.run(place, before_);
  const std::vector<Cell>& cells = evaluator_.cells(view_.score);
  for (std::size_t column = 0; column < o.size(); ++column) {
    if (cells[column].fault) return evaluator_.describe(*cells[column].fault, column);
    o[column] = cells[column].value;
  }
  return {};
}

}  // namespace attn::reference
