#include "compiler/passes/analysis/spans.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace attn::passes {
namespace {

using ir::ExprId;
using ir::Node;
using ir::Op;

std::vector<ExprId> roots_of(const VisibleColumns& columns) {
  std::vector<ExprId> roots;
  for (const Interval& interval : columns.intervals) {
    for (const Edge& edge : {interval.low, interval.high}) {
      roots.push_back(edge.value);
      roots.insert(roots.end(), edge.firsts.begin(), edge.firsts.end());
    }
    if (interval.condition) roots.push_back(*interval.condition);
  }
  return roots;
}

bool is_before(const Span& x, const Span& y) { return x.low < y.low; }

// Sorts the spans and merges those that touch. All must be exact, or none.
Spans joined(Spans spans) {
  std::ranges::sort(spans, is_before);
  Spans out;
  for (const Span& span : spans) {
    if (!out.empty() && span.low <= out.back().high) {
      out.back().high = std::max(out.back().high, span.high);
    } else {
      out.push_back(span);
    }
  }
  return out;
}

// The parts of `spans` outside of `holes`; both must be joined.
Spans outside(const Spans& spans, const Spans& holes) {
  Spans out;
  for (const Span& span : spans) {
    std::int64_t low = span.low;
    for (const Span& hole : holes) {
      if (hole.high <= low || hole.low >= span.high) continue;
      if (low < hole.low) out.push_back({low, hole.low, span.exact});
      low = hole.high;
    }
    if (low < span.high) out.push_back({low, span.high, span.exact});
  }
  return out;
}

Spans normal(const Spans& spans) {
  Spans exact, others;
  for (const Span& span : spans) (span.exact ? exact : others).push_back(span);
  Spans all = joined(std::move(exact));
  const Spans rest = outside(joined(std::move(others)), all);
  all.insert(all.end(), rest.begin(), rest.end());
  std::ranges::sort(all, is_before);
  return all;
}

}  // namespace

bool is_static(const VisibleColumns& columns) {
  const ir::Attention& attention = columns.attention;
  if (!attention.dims.get(ir::Dim::Sq) || !attention.dims.get(ir::Dim::Skv)) return false;
  const auto is_input = [&](ExprId id) {
    const Node& node = attention.dag[id];
    return node.is(Op::load_) || node.is(Op::param_) || node.is(Op::dim_);
  };
  return std::ranges::none_of(ir::reachable(attention.dag, roots_of(columns)), is_input);
}

RowSpans::RowSpans(const VisibleColumns& columns)
    : columns_(columns),
      dag_(columns.attention.dag),
      width_(columns.attention.dims[ir::Dim::Skv]),
      values_(dag_.size()) {
  ATTN_CHECK(is_static(columns), "the intervals are not static");
  Dependence dependence(dag_);
  for (const ExprId id : ir::reachable(dag_, roots_of(columns))) {
    const Axes axes = dependence[id];
    axes_ = axes_ | axes;
    if (!axes.column) (axes.row ? by_row_ : shared_).push_back(id);
  }
  axes_.column = false;
  for (const Interval& interval : columns.intervals) {
    for (const Edge& edge : {interval.low, interval.high}) {
      for (const ExprId id : edge.firsts) {
        const ExprId roots[] = {id};
        searches_[id] = ir::reachable(dag_, roots);
        std::erase_if(searches_[id], [&](ExprId node) { return !dependence[node].column; });
      }
    }
  }
  evaluate(shared_);
}

void RowSpans::look_at(std::int64_t batch, std::int64_t head) {
  batch_ = batch;
  head_ = head;
  evaluate(shared_);
}

Spans RowSpans::of(std::int64_t row) {
  row_ = row;
  evaluate(by_row_);
  Spans spans;
  for (const Interval& interval : columns_.intervals) {
    if (!add(interval, spans)) return {{0, width_, false}};
  }
  return normal(spans);
}

// False when a value is missing.
bool RowSpans::add(const Interval& interval, Spans& spans) {
  if (interval.condition) {
    const Value& condition = values_[*interval.condition];
    if (!condition) return false;
    if (!std::get<bool>(*condition)) return true;
  }
  const auto begin = column_of(interval.low, true), end = column_of(interval.high, false);
  if (!begin || !end) return false;
  if (*begin < *end) spans.push_back({*begin, *end, interval.exact});
  return true;
}

std::optional<std::int64_t> RowSpans::column_of(const Edge& edge, bool largest) {
  if (!values_[edge.value]) return std::nullopt;
  std::int64_t column = std::get<std::int64_t>(*values_[edge.value]);
  for (const ExprId id : edge.firsts) {
    const auto other = first(id);
    if (!other) return std::nullopt;
    column = largest ? std::max(column, *other) : std::min(column, *other);
  }
  return column;
}

std::optional<std::int64_t> RowSpans::first(ExprId condition) {
  std::int64_t low = 0, high = width_;
  while (low < high) {
    column_ = low + (high - low) / 2;
    evaluate(searches_[condition]);
    if (!values_[condition]) return std::nullopt;
    if (std::get<bool>(*values_[condition])) {
      high = column_;
    } else {
      low = column_ + 1;
    }
  }
  return low;
}

void RowSpans::evaluate(const std::vector<ExprId>& order) {
  for (const ExprId id : order) values_[id] = value_of(id);
}

RowSpans::Value RowSpans::value_of(ExprId id) const {
  const Node& node = dag_[id];
  if (node.operands.empty()) return leaf(node, id);
  if (node.is(Op::select_)) {
    const Value& condition = values_[node.operands[0]];
    if (!condition) return std::nullopt;
    return values_[node.operands[std::get<bool>(*condition) ? 1 : 2]];
  }
  std::vector<ir::Constant> operands;
  for (const ExprId operand : node.operands) {
    if (!values_[operand]) return std::nullopt;
    operands.push_back(*values_[operand]);
  }
  return ir::fold(node.op, operands);
}

RowSpans::Value RowSpans::leaf(const Node& node, ExprId id) const {
  switch (node.op) {
    case Op::batch_: return batch_;
    case Op::head_: return head_;
    case Op::row_: return row_;
    case Op::column_: return column_;
    default: return ir::constant_of(dag_, id);
  }
}

std::vector<Spans> spans_of_rows(const VisibleColumns& columns, std::int64_t batch,
                                 std::int64_t head) {
  RowSpans rows(columns);
  rows.look_at(batch, head);
  std::vector<Spans> spans;
  for (std::int64_t row = 0; row < columns.attention.dims[ir::Dim::Sq]; ++row) {
    spans.push_back(rows.of(row));
  }
  return spans;
}

}  // namespace attn::passes
