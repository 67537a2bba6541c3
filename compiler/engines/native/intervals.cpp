#include "compiler/engines/native/intervals.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "compiler/codegen/expression_writer.h"
#include "compiler/engines/native/expressions.h"
#include "compiler/masks/axes.h"

namespace attn::engines::native {
namespace {

using codegen::ExpressionWriter;
using ir::ExprId;
using ir::Node;
using ir::Op;
using ir::Type;

IntervalText call(const char* function, const std::vector<IntervalText>& operands) {
  std::string text;
  for (const IntervalText& operand : operands) {
    if (!operand) return std::nullopt;
    text += (text.empty() ? "" : ", ") + *operand;
  }
  return fmt::format("kernels::{}({})", function, text);
}

// An operand that may be anything leaves the other's influence.
IntervalText logic(const char* function, const IntervalText& x, const IntervalText& y) {
  if (!x && !y) return std::nullopt;
  constexpr const char* kAnything = "kernels::Interval{0, 1}";
  return call(function, {x.value_or(kAnything), y.value_or(kAnything)});
}

// Sums of 64 bits may wrap.
IntervalText interval_of_wide(const Node& node, const std::function<IntervalText(ExprId)>& of) {
  const auto operand = [&](std::size_t i) { return of(node.operands[i]); };
  switch (node.op) {
    case Op::widen_: return operand(0);
    case Op::select_: return call("chosen", {operand(0), operand(1), operand(2)});
    case Op::min_: return call("smaller", {operand(0), operand(1)});
    case Op::max_: return call("larger", {operand(0), operand(1)});
    default: return std::nullopt;
  }
}

class IntervalWriter {
 public:
  explicit IntervalWriter(const ir::Attention& attention)
      : attention_(attention),
        dag_(attention.dag),
        dependence_(attention.dag),
        writer_(attention, {}, codegen::Precision::in_single) {
    writer_.begin({.batch = true, .head = true});
  }

  using Interval = IntervalText;

  Interval conjunction(const std::vector<ExprId>& terms) {
    Interval all;
    bool first = true;
    for (const ExprId term : terms) {
      const Interval of_term = interval(term);
      all = first ? of_term : logic("both", all, of_term);
      first = false;
    }
    return all;
  }

  std::string make() && {
    const Interval all = conjunction(attention_.masks);
    if (!all) {
      return "  static constexpr bool kIntervals = false;\n"
             "  static constexpr int kRowValues = 0, kColumnValues = 0;\n";
    }
    const MaskTerms terms = terms_of_masks(attention_);
    const Interval by_tensors = terms.differ() ? conjunction(terms.by_tensors) : std::nullopt;
    return fmt::format(
               "  static constexpr bool kIntervals = true;\n"
               "  static constexpr int kRowValues = {}, kColumnValues = {};\n",
               rows_.size(), columns_.size()) +
           values("row", {.batch = true, .head = true, .row = true}, rows_) +
           values("column", {.batch = true, .head = true, .column = true}, columns_) +
           visible("visible", *all) +
           (by_tensors ? visible("visible_by_tensors", *by_tensors) : "");
  }

 private:
  std::string visible(const char* name, const std::string& value) const {
    return fmt::format(
        "  __device__ kernels::Interval {}(int b, int h, const kernels::Interval* rows,\n"
        "      const kernels::Interval* columns) const {{\n{}    return {};\n  }}\n",
        name, statements(), value);
  }

  std::string values(const char* axis, const masks::Axes& axes,
                     const std::vector<ExprId>& parts) const {
    ExpressionWriter writer(attention_, {}, codegen::Precision::in_single);
    writer.begin(axes);
    std::string stores;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::string value = narrowed(parts[i], writer.value(parts[i]));
      stores += fmt::format("    values[{}] = {};\n", i, value);
    }
    return fmt::format(
        "  __device__ void {0}_values(int b, int h, int {0}, int* values) const {{\n{1}{2}  }}\n",
        axis, writer.statements(4), stores);
  }

  std::string statements() const {
    std::string text = writer_.statements(4);
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      text += fmt::format("    const kernels::Interval i{} = {};\n", i, lines_[i]);
    }
    return text;
  }

  Interval interval(ExprId id) {
    const auto [found, is_new] = known_.try_emplace(id);
    if (is_new) found->second = of(id);
    return found->second;
  }

  Interval of(ExprId id) {
    if (dag_[id].type == Type::real) return std::nullopt;
    const masks::Axes axes = dependence_[id];
    if (axes.both_sides()) return named(of_both(id));
    if (axes.row) return opened(id, part(id, "rows", rows_));
    if (axes.column) return opened(id, part(id, "columns", columns_));
    return point(id);
  }

  bool is_wide(ExprId id) const { return dag_[id].type == Type::wide; }

  // Intervals are made of values of 32 bits.
  std::string narrowed(ExprId id, const std::string& value) const {
    return is_wide(id) ? fmt::format("attn_narrow({})", value) : value;
  }
  std::string opened(ExprId id, const std::string& interval) const {
    return is_wide(id) ? fmt::format("kernels::opened({})", interval) : interval;
  }
  std::string point(ExprId id) {
    return opened(id, fmt::format("kernels::point({})", narrowed(id, writer_.value(id))));
  }

  Interval named(const Interval& text) {
    if (!text) return text;
    lines_.push_back(*text);
    return fmt::format("i{}", lines_.size() - 1);
  }

  static std::string part(ExprId id, const char* side, std::vector<ExprId>& parts) {
    parts.push_back(id);
    return fmt::format("{}[{}]", side, parts.size() - 1);
  }

  // The interval of what depends on the row and the column.
  Interval of_both(ExprId id) {
    if (dag_[id].is(Op::load_)) return of_load(id);
    return interval_of(dag_[id], [this](ExprId operand) { return interval(operand); });
  }

  // One element, if rows and columns have one value of each index.
  Interval of_load(ExprId id) {
    if (dag_[id].type == Type::real) return std::nullopt;
    std::string one;
    for (const ExprId index : dag_[id].operands) {
      const masks::Axes axes = dependence_[index];
      if (axes.both_sides()) return std::nullopt;
      if (!axes.row && !axes.column) continue;
      const std::string values = *interval(index);
      one += fmt::format("{}kernels::is_point({})", one.empty() ? "" : " && ", values);
      writer_.set_value(index, fmt::format("(int){}.low", values));
    }
    const std::string all = dag_[id].type == Type::boolean ? "kernels::Interval{0, 1}"
                            : is_wide(id)                  ? "kernels::any_wide()"
                                                           : "kernels::any_integer()";
    return fmt::format("({} ? {} : {})", one, point(id), all);
  }

  const ir::Attention& attention_;
  const ir::Dag& dag_;
  masks::Dependence dependence_;
  ExpressionWriter writer_;  // of what depends on neither rows nor columns
  std::vector<ExprId> rows_, columns_;
  std::vector<std::string> lines_;  // the values of i0, i1, ..
  std::map<ExprId, Interval> known_;
};

}  // namespace

IntervalText interval_of(const Node& node, const std::function<IntervalText(ExprId)>& of_operand) {
  if (node.type == Type::wide) return interval_of_wide(node, of_operand);
  const auto operand = [&](std::size_t i) { return of_operand(node.operands[i]); };
  switch (node.op) {
    case Op::and_: return logic("both", operand(0), operand(1));
    case Op::or_: return logic("either", operand(0), operand(1));
    case Op::select_: return call("chosen", {operand(0), operand(1), operand(2)});
    case Op::not_: return call("inverse", {operand(0)});
    case Op::neg_: return call("opposite", {operand(0)});
    case Op::abs_: return call("magnitude", {operand(0)});
    case Op::to_int_: return operand(0);
    case Op::narrow_: return call("closed", {operand(0)});
    case Op::add_: return call("sum", {operand(0), operand(1)});
    case Op::sub_: return call("difference", {operand(0), operand(1)});
    case Op::mul_: return call("product", {operand(0), operand(1)});
    case Op::min_: return call("smaller", {operand(0), operand(1)});
    case Op::max_: return call("larger", {operand(0), operand(1)});
    case Op::floordiv_: return call("quotient", {operand(0), operand(1)});
    case Op::mod_: return call("remainder", {operand(0), operand(1)});
    case Op::lt_: return call("less", {operand(0), operand(1)});
    case Op::gt_: return call("less", {operand(1), operand(0)});
    case Op::le_: return call("less_equal", {operand(0), operand(1)});
    case Op::ge_: return call("less_equal", {operand(1), operand(0)});
    case Op::eq_: return call("equal", {operand(0), operand(1)});
    case Op::ne_: return call("inverse", {call("equal", {operand(0), operand(1)})});
    default: return std::nullopt;
  }
}

bool intervals_decide(const ir::Attention& attention, const std::vector<ExprId>& terms) {
  return IntervalWriter(attention).conjunction(terms).has_value();
}

std::string intervals_text(const ir::Attention& attention) {
  return IntervalWriter(attention).make();
}

}  // namespace attn::engines::native
