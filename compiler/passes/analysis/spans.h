// The intervals of a mask (intervals.h) as numbers, row by row.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "compiler/ir/fold.h"
#include "compiler/passes/analysis/axes.h"
#include "compiler/passes/analysis/intervals.h"

namespace attn::passes {

// Columns low <= column < high; never none.
struct Span {
  std::int64_t low = 0;
  std::int64_t high = 0;
  bool exact = true;  // the mask shows all of it

  bool operator==(const Span&) const = default;
};

// In order, none overlapping another, and none that could be part of the one before it.
using Spans = std::vector<Span>;

// Whether the intervals can be told before the call: Sq and Skv are bound, and no captured tensor
// or param is in them.
bool is_static(const VisibleColumns& columns);

// The rows of static intervals, which must outlive this. Not thread-safe.
class RowSpans {
 public:
  explicit RowSpans(const VisibleColumns& columns);

  Axes axes() const { return axes_; }  // which the spans depend on; the column is none of them
  void look_at(std::int64_t batch, std::int64_t head);  // 0 and 0 before the first call

  // Of one row, in about as many steps as the intervals have operations. All columns, not exact,
  // where a bound has no value or may have wrapped.
  Spans of(std::int64_t row);

 private:
  using Value = std::optional<ir::Constant>;

  void evaluate(const std::vector<ir::ExprId>& order);
  Value value_of(ir::ExprId id) const;
  Value leaf(const ir::Node& node, ir::ExprId id) const;
  std::optional<std::int64_t> first(ir::ExprId condition);
  std::optional<std::int64_t> column_of(const Edge& edge, bool largest);
  bool add(const Interval& interval, Spans& spans);

  const VisibleColumns& columns_;
  const ir::Dag& dag_;
  std::int64_t width_;  // Skv
  std::int64_t batch_ = 0, head_ = 0, row_ = 0, column_ = 0;
  Axes axes_;
  std::vector<ir::ExprId> shared_;                          // of all rows
  std::vector<ir::ExprId> by_row_;                          // of one row
  std::map<ir::ExprId, std::vector<ir::ExprId>> searches_;  // what each stands on, of one column
  std::vector<Value> values_;                               // by id
};

// Of every row.
std::vector<Spans> spans_of_rows(const VisibleColumns& columns, std::int64_t batch = 0,
                                 std::int64_t head = 0);

}  // namespace attn::passes
