// The intervals of a mask (intervals.h) as numbers, for each row.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "compiler/ir/fold.h"
#include "compiler/passes/analysis/axes.h"
#include "compiler/passes/analysis/intervals.h"

namespace attn::passes {

// Columns low <= column < high; never empty.
struct Span {
  std::int64_t low = 0;
  std::int64_t high = 0;
  bool exact = true;  // the mask shows all of it

  bool operator==(const Span&) const = default;
};

// Sorted and disjoint; spans that can be merged are.
using Spans = std::vector<Span>;

// Whether the intervals are known at compile time: Sq and Skv are bound, and they read no captured
// tensor or param.
bool is_static(const VisibleColumns& columns);

// Spans of rows. The intervals must be static and outlive this. Not thread-safe.
class RowSpans {
 public:
  explicit RowSpans(const VisibleColumns& columns);

  Axes axes() const { return axes_; }  // which the spans depend on; never the column
  void look_at(std::int64_t batch, std::int64_t head);  // 0 and 0 before the first call

  // The spans of a row, in about as many steps as the intervals have operations. All columns,
  // inexact, if a bound has no value or may have wrapped.
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
  std::map<ir::ExprId, std::vector<ir::ExprId>> searches_;  // nodes to evaluate for each column
  std::vector<Value> values_;                               // by id
};

// The spans of every row.
std::vector<Spans> spans_of_rows(const VisibleColumns& columns, std::int64_t batch = 0,
                                 std::int64_t head = 0);

}  // namespace attn::passes
