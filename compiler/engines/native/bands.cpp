#include "compiler/engines/native/bands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include "compiler/codegen/expression_writer.h"
#include "compiler/engines/native/intervals.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/masks/affine.h"
#include "compiler/masks/axes.h"
#include "compiler/masks/blocks.h"

namespace attn::engines::native {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Node;
using ir::Op;
using ir::Type;

// What a term shows: from `begin` to `end`, as text. None: it is not bounded there. A condition
// that does not depend on the index shows all or nothing.
struct Ends {
  IntervalText begin{}, end{}, condition{};
  bool begin_varies = false, end_varies = false;  // with the other index
  bool in_doubt = false;                          // inputs decide of some scores
};
using FoundEnds = std::optional<Ends>;

constexpr const char* kBeforeAll = "kernels::before_all()";
constexpr const char* kPastAll = "kernels::past_all()";
constexpr const char* kDoubt = "kernels::Interval{0, 1}";    // of a condition
constexpr std::int64_t kMostFactor = std::int64_t{1} << 20;  // so that products fit 64 bits

class BandWriter {
 public:
  BandWriter(const ir::Attention& attention, Op index)
      : attention_(attention),
        dag_(attention.dag),
        index_(index),
        dependence_(attention.dag),
        writer_(attention, {}, codegen::Precision::in_single) {
    writer_.begin({.batch = true, .head = true});
  }

  std::optional<ClosedBand> make() && {
    Ends all;
    for (const ExprId mask : attention_.masks) {
      const FoundEnds found = ends_of(mask);
      if (!found) return std::nullopt;
      all = both(all, *found);
    }
    all = plain(all);
    const bool columns = index_ == Op::column_;
    std::string text =
        fmt::format("  __device__ kernels::Band {}(int b, int h, kernels::Interval {}) const {{\n",
                    columns ? "columns" : "rows", other());
    text += writer_.statements(4);
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      text += fmt::format("    const kernels::Interval i{} = {};\n", i, lines_[i]);
    }
    text += fmt::format("    return {{{}, {}}};\n  }}\n", all.begin.value_or(kBeforeAll),
                        all.end.value_or(kPastAll));
    return ClosedBand{text, all.begin.has_value(), all.begin_varies, all.end_varies, all.in_doubt};
  }

 private:
  bool is_along(ExprId id, Op index) {
    const masks::Axes axes = dependence_[id];
    return index == Op::column_ ? axes.column : axes.row;
  }
  bool has_index(ExprId id) { return is_along(id, index_); }
  bool varies(ExprId id) { return is_along(id, index_ == Op::row_ ? Op::column_ : Op::row_); }
  const char* other() const { return index_ == Op::column_ ? "rows" : "columns"; }

  template <typename... Texts>
  std::string named(const char* function, const Texts&... texts) {
    const std::string operands[] = {texts...};
    std::string all;
    for (const std::string& operand : operands) all += (all.empty() ? "" : ", ") + operand;
    lines_.push_back(fmt::format("kernels::{}({})", function, all));
    return fmt::format("i{}", lines_.size() - 1);
  }
  static std::string point(std::int64_t value) { return fmt::format("kernels::point({})", value); }
  std::string negative(const std::string& x) { return named("bound_difference", point(0), x); }

  FoundEnds ends_of(ExprId id) {
    const FoundEnds found = decided(id);
    if (found || is_made_of_terms(dag_[id]) || !reads_inputs(id)) return found;
    return Ends{.condition = kDoubt,
                .begin_varies = varies(id),
                .end_varies = varies(id),
                .in_doubt = true};
  }
  // What terms show together is in doubt only as far as one of them is.
  static bool is_made_of_terms(const Node& node) {
    return node.is(Op::and_) || node.is(Op::or_) || node.is(Op::not_) || node.is(Op::select_);
  }
  // Lengths are known where doubts are counted.
  bool reads_inputs(ExprId term) const {
    const ExprId roots[] = {term};
    return std::ranges::any_of(ir::reachable(dag_, roots), [this](ExprId id) {
      return dag_[id].is(Op::load_) && dag_.symbol_of(id) != ir::kLengthsQ &&
             dag_.symbol_of(id) != ir::kLengthsKv;
    });
  }

  // What a term shows; nothing if it is no band, or in doubt.
  FoundEnds decided(ExprId id) {
    const Node& node = dag_[id];
    if (!has_index(id)) {
      const IntervalText condition = interval(id);
      if (!condition) return std::nullopt;
      return Ends{.condition = condition, .begin_varies = varies(id), .end_varies = varies(id)};
    }
    const auto operand = [&](std::size_t i) { return node.operands[i]; };
    switch (node.op) {
      case Op::and_: return both(ends_of(operand(0)), ends_of(operand(1)));
      case Op::or_: return either(ends_of(operand(0)), ends_of(operand(1)));
      case Op::not_: return opposite(ends_of(operand(0)));
      case Op::select_: return chosen(node);
      case Op::le_: return at_most(operand(0), operand(1), 0);
      case Op::lt_: return at_most(operand(0), operand(1), 1);
      case Op::ge_: return at_most(operand(1), operand(0), 0);
      case Op::gt_: return at_most(operand(1), operand(0), 1);
      case Op::eq_:
        return both(at_most(operand(0), operand(1), 0), at_most(operand(1), operand(0), 0));
      default: return std::nullopt;
    }
  }

  // A condition as an end.
  Ends plain(const Ends& x) {
    if (!x.condition) return x;
    const std::string end = named("end_if", *x.condition);
    return {.end = x.end ? named("smaller", *x.end, end) : end,
            .end_varies = x.end_varies,
            .in_doubt = x.in_doubt};
  }

  Ends both(const Ends& of_x, const Ends& of_y) {
    const Ends x = plain(of_x), y = plain(of_y);
    Ends made{.begin = x.begin ? x.begin : y.begin,
              .end = x.end ? x.end : y.end,
              .begin_varies = x.begin_varies || y.begin_varies,
              .end_varies = x.end_varies || y.end_varies,
              .in_doubt = x.in_doubt || y.in_doubt};
    if (x.begin && y.begin) made.begin = named("larger", *x.begin, *y.begin);
    if (x.end && y.end) made.end = named("smaller", *x.end, *y.end);
    return made;
  }
  FoundEnds both(const FoundEnds& x, const FoundEnds& y) {
    return x && y ? FoundEnds(both(*x, *y)) : std::nullopt;
  }

  // Two bands are one if neither begins, or neither ends, or one is all or nothing.
  FoundEnds either(const FoundEnds& x, const FoundEnds& y) {
    if (!x || !y) return std::nullopt;
    if (x->condition && y->condition) {
      return Ends{.condition = named("either", *x->condition, *y->condition),
                  .begin_varies = x->begin_varies || y->begin_varies,
                  .end_varies = x->end_varies || y->end_varies,
                  .in_doubt = x->in_doubt || y->in_doubt};
    }
    if (x->condition) return with_condition(*x, *y);
    if (y->condition) return with_condition(*y, *x);
    Ends made{.begin_varies = x->begin_varies || y->begin_varies,
              .end_varies = x->end_varies || y->end_varies,
              .in_doubt = x->in_doubt || y->in_doubt};
    const bool is_band = (!x->begin && !y->begin) || (!x->end && !y->end);
    if (!is_band && x->in_doubt == y->in_doubt) return std::nullopt;
    if (!is_band) return x->in_doubt ? around(*y, *x, made) : around(*x, *y, made);
    if (x->begin && y->begin) made.begin = named("smaller", *x->begin, *y->begin);
    if (x->end && y->end) made.end = named("larger", *x->end, *y->end);
    return made;
  }
  // What `certain` shows is seen for sure, and nothing outside of both.
  Ends around(const Ends& certain, const Ends& doubtful, Ends made) {
    if (certain.begin)
      made.begin = named("lowered", *certain.begin, doubtful.begin.value_or(kBeforeAll));
    if (certain.end) made.end = named("raised", *certain.end, doubtful.end.value_or(kPastAll));
    return made;
  }
  Ends with_condition(const Ends& of_condition, const Ends& x) {
    const std::string& condition = *of_condition.condition;
    Ends made{.begin_varies = of_condition.begin_varies || x.begin_varies,
              .end_varies = of_condition.begin_varies || x.end_varies,
              .in_doubt = of_condition.in_doubt || x.in_doubt};
    if (x.begin) made.begin = named("smaller", *x.begin, named("begin_if", condition));
    if (x.end) made.end = named("larger", *x.end, named("end_if", condition));
    return made;
  }

  FoundEnds opposite(const FoundEnds& x) {
    if (!x || (x->begin && x->end)) return std::nullopt;
    return Ends{.begin = x->end,
                .end = x->begin,
                .condition = x->condition ? named("inverse", *x->condition) : IntervalText(),
                .begin_varies = x->end_varies,
                .end_varies = x->begin_varies,
                .in_doubt = x->in_doubt};
  }

  FoundEnds chosen(const Node& node) {
    if (has_index(node.operands[0])) {
      const FoundEnds condition = ends_of(node.operands[0]);
      return either(both(condition, ends_of(node.operands[1])),
                    both(opposite(condition), ends_of(node.operands[2])));
    }
    const IntervalText condition = interval(node.operands[0]);
    const FoundEnds found_x = ends_of(node.operands[1]), found_y = ends_of(node.operands[2]);
    if (!condition || !found_x || !found_y) return std::nullopt;
    const Ends x = plain(*found_x), y = plain(*found_y);
    const bool by_condition = varies(node.operands[0]);
    Ends made{.begin_varies = by_condition || x.begin_varies || y.begin_varies,
              .end_varies = by_condition || x.end_varies || y.end_varies,
              .in_doubt = x.in_doubt || y.in_doubt};
    const auto one = [&](const IntervalText& of_x, const IntervalText& of_y, const char* none) {
      return named("chosen", *condition, of_x.value_or(none), of_y.value_or(none));
    };
    if (x.begin || y.begin) made.begin = one(x.begin, y.begin, kBeforeAll);
    if (x.end || y.end) made.end = one(x.end, y.end, kPastAll);
    return made;
  }

  // x + more <= y
  FoundEnds at_most(ExprId x, ExprId y, std::int64_t more) {
    const bool of_x = has_index(x);
    if (of_x && has_index(y)) return std::nullopt;
    const ExprId free = of_x ? y : x;
    const IntervalText value = interval(free);
    is_open_ = dag_[free].type == Type::wide;
    if (!value || (dag_[free].type != Type::integer && dag_[free].type != Type::wide)) return {};
    std::string bound = dag_[free].type == Type::wide ? named("bound", *value) : *value;
    if (more != 0) bound = named(of_x ? "bound_difference" : "bound_sum", bound, point(more));
    FoundEnds found = solved(of_x ? x : y, bound, of_x);
    if (found) found->begin_varies = found->end_varies = varies(free) || varies(of_x ? x : y);
    return found;
  }

  // Which indices make the value at most, or at least, the bound.
  FoundEnds solved(ExprId id, const std::string& given, bool at_most) {
    const Node& node = dag_[id];
    if (node.is(index_)) {
      if (at_most) return Ends{.end = named("bound_sum", given, point(1))};
      return Ends{.begin = given};
    }
    const IntervalText bound = unless_wrapped(id, given);
    if (!bound) return std::nullopt;
    switch (node.op) {
      case Op::widen_: return solved(node.operands[0], *bound, at_most);
      case Op::neg_: return solved(node.operands[0], negative(*bound), !at_most);
      case Op::add_:
      case Op::sub_: return solved_sum(node, *bound, at_most);
      case Op::mul_: return solved_product(node, *bound, at_most);
      case Op::floordiv_: return solved_quotient(node, *bound, at_most);
      case Op::abs_:
        if (!at_most) return std::nullopt;
        return both(solved(node.operands[0], *bound, true),
                    solved(node.operands[0], negative(*bound), false));
      default: return std::nullopt;
    }
  }

  FoundEnds solved_sum(const Node& node, const std::string& bound, bool at_most) {
    const bool first = has_index(node.operands[0]);
    if (first && has_index(node.operands[1])) return std::nullopt;
    const IntervalText rest = interval(node.operands[first ? 1 : 0]);
    if (!rest) return std::nullopt;
    const ExprId with_index = node.operands[first ? 0 : 1];
    if (node.is(Op::add_))
      return solved(with_index, named("bound_difference", bound, *rest), at_most);
    if (first) return solved(with_index, named("bound_sum", bound, *rest), at_most);
    return solved(with_index, named("bound_difference", *rest, bound), !at_most);
  }

  std::int64_t factor(ExprId id) const {
    const bool is_factor =
        dag_[id].is(Op::const_int_) && std::abs(dag_.integer_of(id)) <= kMostFactor;
    return is_factor ? dag_.integer_of(id) : 0;
  }

  FoundEnds solved_product(const Node& node, const std::string& bound, bool at_most) {
    const bool first = has_index(node.operands[0]);
    const std::int64_t by = factor(node.operands[first ? 1 : 0]);
    if (by == 0 || (is_open_ && std::abs(by) > 1)) return std::nullopt;
    const std::string limit = by < 0 ? negative(bound) : bound;
    const std::string divisor = std::to_string(std::abs(by));
    const ExprId with_index = node.operands[first ? 0 : 1];
    if (at_most != (by < 0))
      return solved(with_index, named("bound_quotient", limit, divisor), true);
    const std::string up = named("bound_quotient", negative(limit), divisor);
    return solved(with_index, negative(up), false);
  }

  FoundEnds solved_quotient(const Node& node, const std::string& bound, bool at_most) {
    const std::int64_t by = factor(node.operands[1]);
    if (by <= 0) return std::nullopt;
    const std::string least = named("bound_product", bound, std::to_string(by));
    if (!at_most) return solved(node.operands[0], least, false);
    return solved(node.operands[0], named("bound_sum", least, point(by - 1)), true);
  }

  // The bound, unless sums of integers that it was found by may wrap.
  IntervalText unless_wrapped(ExprId id, const std::string& bound) {
    const bool wraps = !dag_[id].is(Op::widen_) && !dag_[id].is(Op::floordiv_);
    if (!wraps || masks::affine_of(attention_, id)) return bound;
    const IntervalText value = whole(id);
    is_open_ = true;
    return value ? IntervalText(named("unless_wrapped", *value, bound)) : std::nullopt;
  }

  // The interval for all indices.
  IntervalText whole(ExprId id) {
    if (!has_index(id)) return interval(id);
    if (dag_[id].is(index_)) {
      const std::int64_t size = attention_.dims[index_ == Op::column_ ? Dim::Skv : Dim::Sq];
      return fmt::format("kernels::Interval{{0, {}}}", size - 1);
    }
    if (dag_[id].is(Op::load_)) return std::nullopt;
    return interval_of(dag_[id], [this](ExprId operand) { return whole(operand); });
  }

  // The interval of what does not depend on the index.
  IntervalText interval(ExprId id) {
    const auto [found, is_new] = known_.try_emplace(id);
    if (!is_new) return found->second;
    IntervalText made;
    if (const auto rest = cancelled(dag_[id]))
      made = interval(*rest);
    else if (!varies(id))
      made = constant(id);
    else if (dag_[id].is(Op::row_) || dag_[id].is(Op::column_))
      made = other();
    else if (follows(dag_[id]))
      made = interval_of(dag_[id], [this](ExprId operand) { return interval(operand); });
    if (made && varies(id) && *made != other()) {
      lines_.push_back(*made);
      made = fmt::format("i{}", lines_.size() - 1);
    }
    return known_[id] = made;
  }

  // What is left of a sum, which wraps, less one of its addends: where rows are aligned with the
  // last keys, q_idx - q_raw is a number of the batch. Its interval would be as wide as a tile.
  std::optional<ExprId> cancelled(const Node& node) const {
    if (!node.is(Op::sub_) || node.type == Type::real) return std::nullopt;
    const Node& sum = dag_[node.operands[0]];
    if (!sum.is(Op::add_)) return std::nullopt;
    if (sum.operands[0] == node.operands[1]) return sum.operands[1];
    return sum.operands[1] == node.operands[1] ? std::optional(sum.operands[0]) : std::nullopt;
  }

  std::string constant(ExprId id) {
    if (dag_[id].type != Type::wide) return fmt::format("kernels::point({})", writer_.value(id));
    return fmt::format("kernels::opened(kernels::point(attn_narrow({})))", writer_.value(id));
  }

  // Whether it rises or falls with the other index where its operands do, so that its interval has
  // no more values than it takes.
  bool follows(const Node& node) {
    switch (node.op) {
      case Op::mul_: return factor(node.operands[0]) != 0 || factor(node.operands[1]) != 0;
      case Op::floordiv_: return factor(node.operands[1]) > 0;
      case Op::select_: return !varies(node.operands[0]);
      case Op::add_:
      case Op::sub_:
      case Op::neg_:
      case Op::min_:
      case Op::max_:
      case Op::widen_:
      case Op::narrow_:
      case Op::and_:
      case Op::or_:
      case Op::not_:
      case Op::lt_:
      case Op::le_:
      case Op::gt_:
      case Op::ge_: return node.type != Type::real;
      default: return false;
    }
  }

  const ir::Attention& attention_;
  const ir::Dag& dag_;
  const Op index_;
  masks::Dependence dependence_;
  codegen::ExpressionWriter writer_;  // of what depends on neither rows nor columns
  std::vector<std::string> lines_;    // the values of i0, i1, ..
  std::map<ExprId, IntervalText> known_;
  bool is_open_ = false;  // the bound that is solved for may be kBeyond, of which no part is beyond
};

// Whether inputs decide what masks show of few scores, at full length.
bool doubts_few(const ir::Attention& attention, const target::Deadline* deadline) {
  constexpr std::int64_t kLeastShown = 2;  // times as many
  const BatchesOfLength full{1, attention.dims[Dim::Sq], attention.dims[Dim::Skv]};
  if (full.rows == 0 || full.keys == 0) return false;
  const masks::RowCounts seen = masks::row_counts(of_length(attention, full), deadline);
  return kLeastShown * (seen.most - seen.fewest) <= seen.most;
}

}  // namespace

std::optional<ClosedBand> closed_band(const ir::Attention& attention, Op index,
                                      const target::Deadline* deadline) {
  auto made = BandWriter(attention, index).make();
  if (made && made->in_doubt && !doubts_few(attention, deadline)) made.reset();
  return made;
}

}  // namespace attn::engines::native
