#include "compiler/engines/cudnn/expression.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "compiler/engines/cudnn/captured_view.h"
#include "compiler/engines/cudnn/whole_quotient.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/ir/real_function.h"
#include "compiler/masks/range.h"
#include "compiler/rewrite/division.h"
#include "compiler/rewrite/reals.h"
#include "runtime/base/check.h"

namespace attn::engines {
namespace {

using ir::ExprId;
using ir::Op;

DType element_type(ir::Type type) {
  switch (type) {
    case ir::Type::boolean: return DType::boolean;
    case ir::Type::integer: return DType::i32;
    case ir::Type::wide: return DType::i64;
    case ir::Type::real: return DType::f32;
  }
  return DType::f32;
}

PointwiseMode comparison_mode(Op op) {
  switch (op) {
    case Op::lt_: return PointwiseMode::cmp_lt;
    case Op::le_: return PointwiseMode::cmp_le;
    case Op::gt_: return PointwiseMode::cmp_gt;
    case Op::ge_: return PointwiseMode::cmp_ge;
    case Op::eq_: return PointwiseMode::cmp_eq;
    default: return PointwiseMode::cmp_ne;
  }
}

// The comparison that holds for (y, x) when `mode` holds for (x, y).
PointwiseMode mirrored(PointwiseMode mode) {
  switch (mode) {
    case PointwiseMode::cmp_lt: return PointwiseMode::cmp_gt;
    case PointwiseMode::cmp_le: return PointwiseMode::cmp_ge;
    case PointwiseMode::cmp_gt: return PointwiseMode::cmp_lt;
    case PointwiseMode::cmp_ge: return PointwiseMode::cmp_le;
    default: return mode;
  }
}

bool is_greater(PointwiseMode mode) {
  return mode == PointwiseMode::cmp_gt || mode == PointwiseMode::cmp_ge;
}

// The comparison of integers that holds when `mode` does not.
PointwiseMode opposite(PointwiseMode mode) {
  switch (mode) {
    case PointwiseMode::cmp_lt: return PointwiseMode::cmp_ge;
    case PointwiseMode::cmp_le: return PointwiseMode::cmp_gt;
    case PointwiseMode::cmp_gt: return PointwiseMode::cmp_le;
    case PointwiseMode::cmp_ge: return PointwiseMode::cmp_lt;
    case PointwiseMode::cmp_eq: return PointwiseMode::cmp_ne;
    default: return PointwiseMode::cmp_eq;
  }
}

// The mode of a function that is one node.
PointwiseMode function_mode(Op op) {
  const ir::RealFunction* function = ir::find_real_function(op);
  const auto mode =
      graph::parse_pointwise_mode(function != nullptr ? function->cudnn : ir::info(op).name);
  ATTN_CHECK(mode.has_value(), ir::info(op).name);
  return *mode;
}

PointwiseMode arithmetic_mode(Op op) {
  switch (op) {
    case Op::add_: return PointwiseMode::add;
    case Op::mul_: return PointwiseMode::mul;
    case Op::min_: return PointwiseMode::min;
    default: return PointwiseMode::max;
  }
}

}  // namespace

Result<Value> ExpressionLowering::lower(ExprId id) {
  if (const auto known = done_.find(id); known != done_.end()) return known->second;
  ATTN_ASSIGN(const Value value, lower_new(id));
  done_.emplace(id, value);
  return value;
}

Result<Value> ExpressionLowering::lower_factor(ExprId id) {
  ATTN_ASSIGN(const Value value, lower(id));
  return value.place == Place::element ? real(value, attention_.dag[id].pos) : value;
}

Result<Value> ExpressionLowering::lower_real_element(ExprId id) {
  ATTN_ASSIGN(const Value value, lower(id));
  const SourcePos pos = attention_.dag[id].pos;
  const Value whole = element(value, pos);
  return whole.dtype == DType::i32 ? real(whole, pos) : whole;
}

Result<Value> ExpressionLowering::lower_new(ExprId id) {
  const ir::Node& node = attention_.dag[id];
  const auto is_wide = [this](ExprId each) { return attention_.dag[each].type == ir::Type::wide; };
  if (is_wide(id) || std::ranges::any_of(node.operands, is_wide)) {
    return unsupported(node.pos, "cuDNN has no integers of 64 bits",
                       "declare the tensor as i32 if its elements fit");
  }
  switch (ir::info(node.op).rule) {
    case ir::Rule::wide_leaf:
    case ir::Rule::widen:
    case ir::Rule::narrow: break;  // of wide integers
    case ir::Rule::boolean_leaf:
    case ir::Rule::integer_leaf:
    case ir::Rule::real_leaf: return leaf(id);
    case ir::Rule::symbol_type:
      if (node.is(Op::load_)) return load(id);
      return builder_.param(attention_.dag.symbol_of(id), element_type(node.type));
    case ir::Rule::arithmetic: return arithmetic(id);
    case ir::Rule::real_function: return real_function(id);
    case ir::Rule::comparison: return comparison(id, false);
    case ir::Rule::logic: return node.is(Op::not_) ? negation(node.operands[0]) : logic(id);
    case ir::Rule::selection: return selection(id);
    case ir::Rule::bits:
      return unsupported(node.pos, "cuDNN has no bit operations on integers",
                         "for non-negative values, `x // 2` and `x % 2` extract bits");
    case ir::Rule::to_real:
    case ir::Rule::to_int: return conversion(id);
    case ir::Rule::truncate:
      return unsupported(node.pos, "cuDNN cannot convert a real to an integer inside its kernel",
                         "`floor` and `ceil` return reals");
  }
  ATTN_CHECK(false, "every rule is handled");
  return Value{};
}

Result<Value> ExpressionLowering::real_constant(ExprId id) {
  const double value = attention_.dag.real_of(id);
  const SourcePos pos = attention_.dag[id].pos;
  if (std::isnan(value)) return spec_error(pos, "this expression is NaN for all inputs");
  if (std::isfinite(value) && !std::isfinite(static_cast<float>(value))) {
    return unsupported(pos, fmt::format("{} is too large for f32, in which cuDNN computes", value));
  }
  return builder_.constant(DType::f32, value);
}

Result<Value> ExpressionLowering::leaf(ExprId id) {
  const ir::Node& node = attention_.dag[id];
  switch (node.op) {
    case Op::const_int_:
      return builder_.constant(DType::i32, static_cast<double>(attention_.dag.integer_of(id)));
    case Op::const_real_: return real_constant(id);
    case Op::const_bool_: {
      const Value zero = builder_.constant(DType::i32, 0);
      const auto mode =
          attention_.dag.boolean_of(id) ? PointwiseMode::cmp_eq : PointwiseMode::cmp_ne;
      return builder_.element(mode, DType::boolean, DType::boolean, zero_index(node.pos), zero,
                              node.pos);
    }
    case Op::score_: return score_;
    case Op::batch_: return index(0, node.pos);
    case Op::head_: return index(1, node.pos);
    case Op::row_: return index(2, node.pos);
    case Op::column_: return index(3, node.pos);
    default: ATTN_CHECK(false, "dimensions are bound before lowering"); return Value{};
  }
}

Value ExpressionLowering::index(std::size_t axis, SourcePos pos) {
  const Dims4& scores = builder_.score_dims();
  if (scores[2] > 1) return builder_.index(static_cast<std::int64_t>(axis), score_.uid, pos);
  if (scores[axis] == 1) return builder_.constant(DType::i32, 0);
  return builder_.iota(axis);
}

Result<Value> ExpressionLowering::load(ExprId id) {
  ATTN_ASSIGN(CapturedView view, captured_view(attention_, id));
  if (builder_.pass() == Pass::backward) view = read_by_rows(view, builder_.score_dims());
  const std::string& name = attention_.dag.symbol_of(id);
  const Uid uid = builder_.add_tensor(name, view.dtype, view.dims, view.strides,
                                      {.alignment = captured_alignment(name)});
  const Value value{uid, view.dtype == DType::i32 ? DType::i32 : DType::f32, Place::tensor};
  // The backward engine limits the number of uses of vectors over rows.
  const bool over_rows = view.dims[2] > 1 && view.dims[3] == 1;
  if (builder_.pass() == Pass::forward || !over_rows) return value;
  return element(value, attention_.dag[id].pos);
}

Value ExpressionLowering::zero_index(SourcePos pos) {
  if (!zero_index_) {
    const Value row = builder_.index(2, score_.uid, pos);
    zero_index_ = builder_.element(PointwiseMode::sub, DType::i32, DType::i32, row, row, pos);
  }
  return *zero_index_;
}

Value ExpressionLowering::element(Value value, SourcePos pos) {
  if (value.place == Place::element) return value;
  return builder_.element(PointwiseMode::add, value.dtype, value.dtype, zero_index(pos), value,
                          pos);
}

// An i32 element as f32; f32 values as they are.
Value ExpressionLowering::real(Value value, SourcePos pos) {
  if (value.dtype != DType::i32) return value;
  return builder_.element(PointwiseMode::add, DType::f32, DType::f32, element(value, pos),
                          builder_.constant(DType::f32, 0), pos);
}

bool ExpressionLowering::depends_on_score(ExprId id) const {
  const ExprId roots[] = {id};
  return std::ranges::any_of(ir::reachable(attention_.dag, roots),
                             [this](ExprId each) { return attention_.dag[each].is(Op::score_); });
}

bool ExpressionLowering::score_comes_second(const ir::Node& node) const {
  return builder_.pass() == Pass::backward && !depends_on_score(node.operands[0]) &&
         depends_on_score(node.operands[1]);
}

// A commutative operation.
Value ExpressionLowering::binary(PointwiseMode mode, DType type, Value x, Value y, SourcePos pos) {
  if (x.place != Place::element) std::swap(x, y);
  return builder_.element(mode, type, type, element(x, pos), y, pos);
}

Value ExpressionLowering::difference(DType type, Value x, Value y, SourcePos pos) {
  if (x.place == Place::element || y.place != Place::element) {
    return builder_.element(PointwiseMode::sub, type, type, element(x, pos), y, pos);
  }
  const Value minus = builder_.element(PointwiseMode::neg, type, type, y, {}, pos);
  return builder_.element(PointwiseMode::add, type, type, minus, x, pos);
}

Result<Value> ExpressionLowering::arithmetic(ExprId id) {
  const ir::Node& node = attention_.dag[id];
  if (node.is(Op::floordiv_) || node.is(Op::mod_)) {
    return node.type == ir::Type::integer ? integer_quotient(id) : real_quotient(id);
  }
  const DType type = element_type(node.type);
  ATTN_ASSIGN(Value x, lower(node.operands[0]));
  if (node.is(Op::neg_) || node.is(Op::abs_)) {
    const auto mode = node.is(Op::neg_) ? PointwiseMode::neg : PointwiseMode::abs;
    const Value input =
        type == DType::f32 ? real(element(x, node.pos), node.pos) : element(x, node.pos);
    return builder_.element(mode, type, type, input, {}, node.pos);
  }
  ATTN_ASSIGN(Value y, lower(node.operands[1]));
  if (type == DType::f32) {
    // An index may stay i32 beside a tensor or scalar: the recorded form of ALiBi.
    const bool keep_x = x.place == Place::element && y.place != Place::element;
    const bool keep_y = y.place == Place::element && x.place != Place::element;
    const bool commutes = !node.is(Op::sub_);
    if (!(commutes && keep_x)) x = real(x, node.pos);
    if (!(commutes && keep_y)) y = real(y, node.pos);
  }
  const bool turned = score_comes_second(node);
  if (node.is(Op::sub_) && turned) {
    const Value minus = builder_.element(PointwiseMode::neg, type, type, y, {}, node.pos);
    return binary(PointwiseMode::add, type, minus, x, node.pos);
  }
  if (node.is(Op::sub_)) return difference(type, x, y, node.pos);
  if (turned) std::swap(x, y);
  return binary(arithmetic_mode(node.op), type, x, y, node.pos);
}

Result<Value> ExpressionLowering::integer_quotient(ExprId id) {
  const ir::Node& node = attention_.dag[id];
  if (rewrite::may_round_up(attention_, node)) {
    return unsupported(node.pos,
                       fmt::format("`{}` rounds down, but cuDNN's integer division truncates: the "
                                   "dividend must be known to be non-negative and the divisor to "
                                   "be positive",
                                   ir::to_source(attention_.dag, id)),
                       "add a multiple of the divisor that makes the dividend positive");
  }
  if (!rewrite::is_exact_in_kernel(attention_, node)) {
    return unsupported(node.pos,
                       fmt::format("`{}` may divide numbers of {} or more, for which cuDNN's "
                                   "integer division is not exact",
                                   ir::to_source(attention_.dag, id), rewrite::kWholeInReals),
                       "divide smaller numbers, or by a power of two");
  }
  ATTN_ASSIGN(Value x, lower(node.operands[0]));
  x = element(x, node.pos);
  ATTN_ASSIGN(const Value quotient, exact_quotient(node, x));
  if (node.is(Op::floordiv_)) return quotient;
  ATTN_ASSIGN(const Value y, lower(node.operands[1]));
  const Value multiple =
      builder_.element(PointwiseMode::mul, DType::i32, DType::i32, quotient, y, node.pos);
  return builder_.element(PointwiseMode::sub, DType::i32, DType::i32, x, multiple, node.pos);
}

// See rewrite/division.h.
Result<Value> ExpressionLowering::exact_quotient(const ir::Node& node, const Value& x) {
  const auto apply = [&](PointwiseMode mode, const Value& left, const Value& right) {
    return builder_.element(mode, DType::i32, DType::i32, left, right, node.pos);
  };
  const auto whole = [&](std::int64_t value) {
    return builder_.constant(DType::i32, static_cast<double>(value));
  };
  const auto divisor = ir::fold_integer(attention_.dag, node.operands[1]);
  if (rewrite::is_by_power_of_two(attention_.dag, node)) {
    return apply(PointwiseMode::div, x, whole(*divisor));
  }
  const Value odd = apply(PointwiseMode::add, apply(PointwiseMode::add, x, x), whole(1));
  if (divisor) return apply(PointwiseMode::div, odd, whole(2 * *divisor));
  ATTN_ASSIGN(Value y, lower(node.operands[1]));
  y = element(y, node.pos);
  return apply(PointwiseMode::div, odd, apply(PointwiseMode::add, y, y));
}

Result<Value> ExpressionLowering::real_quotient(ExprId id) {
  const ir::Node& node = attention_.dag[id];
  ATTN_ASSIGN(Value x, lower(node.operands[0]));
  ATTN_ASSIGN(Value y, lower(node.operands[1]));
  x = real(element(x, node.pos), node.pos);
  y = real(y, node.pos);
  const Value quotient =
      builder_.element(PointwiseMode::div, DType::f32, DType::f32, x, y, node.pos);
  const Value whole =
      builder_.element(PointwiseMode::floor, DType::f32, DType::f32, quotient, {}, node.pos);
  if (node.is(Op::floordiv_)) return whole;
  const Value product =
      builder_.element(PointwiseMode::mul, DType::f32, DType::f32, whole, y, node.pos);
  return builder_.element(PointwiseMode::sub, DType::f32, DType::f32, x, product, node.pos);
}

Result<Value> ExpressionLowering::floor_of(const WholeQuotient& quotient, SourcePos pos) {
  const auto apply = [&](PointwiseMode mode, Value x, double y) {
    return builder_.element(mode, DType::f32, DType::f32, x, builder_.constant(DType::f32, y), pos);
  };
  ATTN_ASSIGN(Value x, lower(quotient.x));
  x = real(element(x, pos), pos);
  x = apply(PointwiseMode::mul, x, 1 / quotient.divisor);
  x = apply(PointwiseMode::add, x, nearest_shift(quotient.divisor));
  return apply(PointwiseMode::sub, apply(PointwiseMode::add, x, kWholes), kWholes);
}

Result<Value> ExpressionLowering::real_function(ExprId id) {
  const ir::Node& node = attention_.dag[id];
  if (node.is(Op::floor_)) {
    if (const auto quotient = whole_quotient(attention_, node.operands[0])) {
      return floor_of(*quotient, node.pos);
    }
  }
  const ir::RealFunction* function = ir::find_real_function(node.op);
  if (function != nullptr && !function->is_in_cudnn()) {
    return unsupported(node.pos, fmt::format("`{}` has no form that is proven in cuDNN's kernels",
                                             ir::info(node.op).name));
  }
  ATTN_ASSIGN(Value x, lower(node.operands[0]));
  x = real(element(x, node.pos), node.pos);
  if (function != nullptr && function->is_composed()) return composed(node.op, x, node.pos);
  std::optional<Value> y;
  if (node.operands.size() == 2) {
    ATTN_ASSIGN(const Value second, lower(node.operands[1]));
    y = real(second, node.pos);
  }
  return builder_.element(function_mode(node.op), DType::f32, DType::f32, x, y, node.pos);
}

Value ExpressionLowering::composed(Op op, Value x, SourcePos pos) {
  const auto apply = [&](PointwiseMode mode, Value a, std::optional<Value> b = {}) {
    return builder_.element(mode, DType::f32, DType::f32, a, b, pos);
  };
  const auto constant = [&](double value) { return builder_.constant(DType::f32, value); };
  switch (op) {
    case Op::exp2_:
      return apply(PointwiseMode::exp, apply(PointwiseMode::mul, x, constant(std::numbers::ln2)));
    case Op::log2_: {
      const Value factor = constant(std::numbers::log2e);
      return apply(PointwiseMode::mul, apply(PointwiseMode::log, x), factor);
    }
    case Op::log1p_: {
      const Value sum = apply(PointwiseMode::add, x, constant(1));
      return near_zero(x, log1p_series(x, pos), apply(PointwiseMode::log, sum), pos);
    }
    case Op::expm1_: {
      const Value power = apply(PointwiseMode::exp, x);
      const Value difference = apply(PointwiseMode::sub, power, constant(1));
      return near_zero(x, expm1_series(x, pos), difference, pos);
    }
    default: check_failed(__FILE__, __LINE__, "composed", ir::info(op).name);
  }
}

// `series` where |x| < 1/4, otherwise `direct`.
Value ExpressionLowering::near_zero(Value x, Value series, Value direct, SourcePos pos) {
  const Value size = builder_.element(PointwiseMode::abs, DType::f32, DType::f32, x, {}, pos);
  const Value is_near = builder_.element(PointwiseMode::cmp_lt, DType::f32, DType::boolean, size,
                                         builder_.constant(DType::f32, 0.25), pos);
  return builder_.select(is_near, series, direct, pos);
}

// x (1 + x/2! + x^2/3! + ...). The first omitted term is below 5e-8 for |x| < 1/4.
Value ExpressionLowering::expm1_series(Value x, SourcePos pos) {
  const double terms[] = {1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1};
  return builder_.element(PointwiseMode::mul, DType::f32, DType::f32, polynomial(x, terms, pos), x,
                          pos);
}

// 2 atanh(s) = 2 s (1 + s^2/3 + s^4/5 + ...), where s = x / (x + 2). The first omitted term is
// below 4e-10 for |x| < 1/4.
Value ExpressionLowering::log1p_series(Value x, SourcePos pos) {
  const auto apply = [&](PointwiseMode mode, Value a, Value b) {
    return builder_.element(mode, DType::f32, DType::f32, a, b, pos);
  };
  const double terms[] = {2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3, 2};
  const Value sum = apply(PointwiseMode::add, x, builder_.constant(DType::f32, 2));
  const Value s = apply(PointwiseMode::div, x, sum);
  return apply(PointwiseMode::mul, polynomial(apply(PointwiseMode::mul, s, s), terms, pos), s);
}

// The coefficients begin with that of the highest power.
Value ExpressionLowering::polynomial(Value x, std::span<const double> coefficients, SourcePos pos) {
  const auto apply = [&](PointwiseMode mode, Value a, Value b) {
    return builder_.element(mode, DType::f32, DType::f32, a, b, pos);
  };
  Value value = apply(PointwiseMode::mul, x, builder_.constant(DType::f32, coefficients[0]));
  for (std::size_t i = 1; i < coefficients.size(); ++i) {
    if (i > 1) value = apply(PointwiseMode::mul, value, x);
    value = apply(PointwiseMode::add, value, builder_.constant(DType::f32, coefficients[i]));
  }
  return value;
}

Result<Value> ExpressionLowering::comparison(ExprId id, bool negated) {
  const ir::Node& node = attention_.dag[id];
  auto [first, second] = std::pair(node.operands[0], node.operands[1]);
  auto mode = comparison_mode(node.op);
  if (negated) mode = opposite(mode);
  ATTN_ASSIGN(Value x, lower(first));
  if (mode == PointwiseMode::cmp_lt && like_padding(first) &&
      attention_.dag[second].is(Op::const_int_)) {
    return row_up_to(x, attention_.dag.integer_of(second) - 1, node.pos);
  }
  ATTN_ASSIGN(Value y, lower(second));
  const bool of_indices = builder_.score_dims()[2] > 1 && x.place == Place::element &&
                          y.place == Place::element && !depends_on_score(first) &&
                          !depends_on_score(second);
  if (of_indices && is_greater(mode)) {
    std::swap(x, y);
    std::swap(first, second);
    mode = mirrored(mode);
  }
  if (of_indices && attention_.dag[first].type == ir::Type::integer) {
    return integers_compared(mode, {x, masks::range_of(attention_, first).high}, y, node.pos);
  }
  // cuDNN refuses to compare reals in BOOLEAN (it would read them as integers).
  const bool reals = attention_.dag[first].type == ir::Type::real;
  if (reals) {
    x = real(x, node.pos);
    y = real(y, node.pos);
  }
  const DType compute = reals ? DType::f32 : DType::boolean;
  const bool misplaced = x.place != Place::element && y.place == Place::element;
  if (misplaced || score_comes_second(node)) {
    std::swap(x, y);
    std::swap(first, second);
    mode = mirrored(mode);
  }
  if (mode == PointwiseMode::cmp_lt && like_padding(first)) x = plus(x, 0, node.pos);
  if (mode == PointwiseMode::cmp_lt && like_padding(second)) y = plus(y, 0, node.pos);
  return builder_.element(mode, compute, DType::boolean, element(x, node.pos), y, node.pos);
}

// Compares by CMP_LE, unless they are to be equal or not: x < y is x + 1 <= y, or !(y <= x) if x +
// 1 may wrap.
Value ExpressionLowering::integers_compared(PointwiseMode mode, UpTo x, Value y, SourcePos pos) {
  const auto compared = [&](PointwiseMode by, Value a, Value b) {
    return builder_.element(by, DType::boolean, DType::boolean, a, b, pos);
  };
  if (mode != PointwiseMode::cmp_lt) return compared(mode, x.value, y);
  if (x.high == INT32_MAX) return is_false(compared(PointwiseMode::cmp_le, y, x.value), pos);
  return compared(PointwiseMode::cmp_le, plus(x.value, 1, pos), y);
}

// Whether cuDNN may take `id < x`, or `x < id`, for a comparison of its padding mask.
bool ExpressionLowering::like_padding(ExprId id) const {
  if (builder_.score_dims()[2] == 1) return false;
  const ir::Node& node = attention_.dag[id];
  return node.is(Op::row_) ||
         (node.is(Op::to_real_) && attention_.dag[node.operands[0]].is(Op::row_));
}

// row < last + 1, at no cost.
Value ExpressionLowering::row_up_to(Value row, std::int64_t last, SourcePos pos) {
  return builder_.element(PointwiseMode::cmp_le, DType::boolean, DType::boolean, row,
                          builder_.constant(DType::i32, static_cast<double>(last)), pos);
}

Value ExpressionLowering::plus(Value x, double amount, SourcePos pos) {
  return builder_.element(PointwiseMode::add, x.dtype, x.dtype, x,
                          builder_.constant(x.dtype, amount), pos);
}

Result<Value> ExpressionLowering::logic(ExprId id) {
  const ir::Node& node = attention_.dag[id];
  ATTN_ASSIGN(const Value x, lower(node.operands[0]));
  ATTN_ASSIGN(const Value y, lower(node.operands[1]));
  const auto mode = node.is(Op::and_) ? PointwiseMode::logical_and : PointwiseMode::logical_or;
  return builder_.element(mode, DType::f32, DType::boolean, x, y, node.pos);
}

Value ExpressionLowering::boolean_as_real(Value condition, SourcePos pos) {
  const Value one = element(builder_.constant(DType::f32, 1), pos);
  return builder_.select(condition, one, builder_.constant(DType::f32, 0), pos);
}

// not `id`. Comparisons of integers are inverted. Those of reals are not: with NaN, a comparison
// and its opposite are both false.
Result<Value> ExpressionLowering::negation(ExprId id) {
  const ir::Node& node = attention_.dag[id];
  const bool compares = ir::info(node.op).rule == ir::Rule::comparison;
  if (compares && attention_.dag[node.operands[0]].type == ir::Type::integer) {
    return comparison(id, true);
  }
  ATTN_ASSIGN(const Value condition, lower(id));
  return is_false(condition, node.pos);
}

Value ExpressionLowering::is_false(Value condition, SourcePos pos) {
  return builder_.element(PointwiseMode::cmp_eq, DType::f32, DType::boolean,
                          boolean_as_real(condition, pos), builder_.constant(DType::f32, 0), pos);
}

// condition && x || !condition && y
Result<Value> ExpressionLowering::selection_of_booleans(ExprId id) {
  const ir::Node& node = attention_.dag[id];
  const auto logical = [&](PointwiseMode mode, Value x, Value y) {
    return builder_.element(mode, DType::f32, DType::boolean, x, y, node.pos);
  };
  ATTN_ASSIGN(const Value condition, lower(node.operands[0]));
  ATTN_ASSIGN(const Value x, lower(node.operands[1]));
  ATTN_ASSIGN(const Value opposite, negation(node.operands[0]));
  ATTN_ASSIGN(const Value y, lower(node.operands[2]));
  return logical(PointwiseMode::logical_or, logical(PointwiseMode::logical_and, condition, x),
                 logical(PointwiseMode::logical_and, opposite, y));
}

Result<Value> ExpressionLowering::selection(ExprId id) {
  const ir::Node& node = attention_.dag[id];
  if (node.type == ir::Type::boolean) return selection_of_booleans(id);
  if (node.type == ir::Type::integer) {
    return unsupported(node.pos, "cuDNN selects between reals only",
                       "select after the comparison, or between reals");
  }
  ATTN_ASSIGN(const Value condition, lower(node.operands[0]));
  ATTN_ASSIGN(Value x, lower(node.operands[1]));
  ATTN_ASSIGN(Value y, lower(node.operands[2]));
  x = real(element(x, node.pos), node.pos);
  y = real(y, node.pos);
  if (y.place == Place::tensor) y = element(y, node.pos);
  return builder_.select(condition, x, y, node.pos);
}

namespace {

// The score axis of a row or column index.
std::optional<std::int64_t> axis_of(Op op) {
  if (op == Op::row_) return 2;
  return op == Op::column_ ? std::optional<std::int64_t>(3) : std::nullopt;
}

}  // namespace

Result<Value> ExpressionLowering::conversion(ExprId id) {
  const ir::Node& node = attention_.dag[id];
  const ExprId inner = node.operands[0];
  if (const std::optional<std::int64_t> axis = axis_of(attention_.dag[inner].op)) {
    if (builder_.score_dims()[2] > 1) {
      return builder_.real_index(*axis, score_.uid, node.pos);
    }
  }
  ATTN_ASSIGN(const Value value, lower(inner));
  if (attention_.dag[inner].type == ir::Type::integer) {
    // Consumers read an i32 element as a real; a scalar or tensor becomes an element first.
    return element(value, node.pos);
  }
  if (node.is(Op::to_int_)) {
    return unsupported(node.pos, "cuDNN cannot convert a boolean to an integer",
                       "use where(condition, 1.0, 0.0), which is real");
  }
  return boolean_as_real(value, node.pos);
}

}  // namespace attn::engines
