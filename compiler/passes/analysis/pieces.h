// Unions of intervals of columns, before they become expressions (intervals.h).
#pragma once

#include <vector>

#include "compiler/passes/analysis/effort.h"
#include "compiler/passes/analysis/intervals.h"
#include "compiler/passes/analysis/linear.h"

namespace attn::passes {

// A piece from the largest of the lows to the smallest of the highs. Every sum fits 32 bits.
struct Piece {
  std::vector<Linear> lows;   // none is provably below another
  std::vector<Linear> highs;  // none is provably above another
  std::vector<ir::ExprId> low_firsts{};
  std::vector<ir::ExprId> high_firsts{};
  std::vector<ir::ExprId> conditions{};  // all must hold
  bool exact = true;

  bool operator==(const Piece&) const = default;
};

// A union; no piece is provably empty.
using Pieces = std::vector<Piece>;

// Operations on unions of one attention. `forms` and `effort` must outlive this; once the effort is
// spent, unions become one piece that contains them.
class PieceAlgebra {
 public:
  PieceAlgebra(const ir::Attention& attention, LinearForms& forms, Effort& effort);

  Pieces all() const;       // all columns
  Pieces anything() const;  // unknown: may be any of the columns
  Pieces from(const Linear& low);
  Pieces below(const Linear& high);

  // The intersection; more than kMostIntervals become one that contains them.
  Pieces intersect(const Pieces& xs, const Pieces& ys);
  Pieces unite(Pieces xs, const Pieces& ys);

  std::vector<Interval> written(const Pieces& pieces);

 private:
  void raise(Piece& piece, const Linear& low);
  void lower(Piece& piece, const Linear& high);
  void restrict(Piece& piece, const Piece& by);
  bool is_empty(const Piece& piece);
  Pieces hull(const Pieces& pieces);
  bool is_at_most(const Linear& x, const Linear& y);  // for every score

  Interval written(const Piece& piece);
  void merge(std::vector<Interval>& intervals);
  bool absorb(Interval& x, const Interval& y);
  ir::ExprId joined(ir::Op op, const std::vector<ir::ExprId>& ids);
  ir::ExprId extreme(ir::Op op, const std::vector<Linear>& sums);
  ir::ExprId larger(ir::ExprId x, ir::ExprId y);
  ir::ExprId smaller(ir::ExprId x, ir::ExprId y);

  const ir::Dag& dag_;
  LinearForms& forms_;
  Effort& effort_;
  Linear columns_;
};

}  // namespace attn::passes
