#include "compiler/masks/real_range.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <vector>

#include "compiler/ir/real_function.h"
#include "compiler/ir/value.h"
#include "compiler/masks/range.h"

namespace attn::masks {
namespace {

using ir::ExprId;
using ir::Op;

constexpr double kLargest = std::numeric_limits<float>::max();

double rounded(double value) {
  if (std::isnan(value) || std::isinf(value)) return value;
  if (std::abs(value) > kLargest) return std::copysign(kInfinity, value);
  return static_cast<double>(static_cast<float>(value));
}

RealRange including(RealRange range, double value) {
  if (std::isnan(value)) {
    range.nan = true;
  } else {
    range.low = std::min(range.low, rounded(value));
    range.high = std::max(range.high, rounded(value));
  }
  return range;
}

RealRange nothing(bool nan) { return {kInfinity, -kInfinity, nan}; }

bool is_zero(const RealRange& x) { return x.low == 0 && x.high == 0; }
bool is_infinite(const RealRange& x) { return x.low == -kInfinity || x.high == kInfinity; }

// Whether it has finite numbers: corners of 0 and infinity are NaN and do not cover these.
bool has_numbers(const RealRange& x) { return x.low < kInfinity && x.high > -kInfinity; }

// The range of a function that is monotone in each operand.
template <typename Function>
RealRange corners(const RealRange& x, const RealRange& y, const Function& function) {
  RealRange range = nothing(x.nan || y.nan);
  if (x.is_none() || y.is_none()) return RealRange::only_nan();
  for (const double a : {x.low, x.high}) {
    for (const double b : {y.low, y.high}) range = including(range, function(a, b));
  }
  return range;
}

template <typename Function>
RealRange monotone(const RealRange& x, const Function& function) {
  if (x.is_none()) return RealRange::only_nan();
  return including(including(nothing(x.nan), function(x.low)), function(x.high));
}

RealRange product(const RealRange& x, const RealRange& y) {
  RealRange range = corners(x, y, [](double a, double b) { return a * b; });
  range.nan |= (x.holds(0) && is_infinite(y)) || (y.holds(0) && is_infinite(x));
  const bool zero = (x.holds(0) && has_numbers(y)) || (y.holds(0) && has_numbers(x));
  return zero ? including(range, 0) : range;
}

RealRange quotient(const RealRange& x, const RealRange& y) {
  const bool nothing = x.is_none() || y.is_none();
  if (nothing || (is_zero(x) && is_zero(y))) return RealRange::only_nan();
  if (y.holds(0)) return {-kInfinity, kInfinity, true};
  const RealRange range = corners(x, y, [](double a, double b) { return a / b; });
  return has_numbers(x) && is_infinite(y) ? including(range, 0) : range;
}

RealRange power(const RealRange& x, const RealRange& y) {
  const bool points = x.is_point() && y.is_point();
  if (!points && !(x.low >= 0)) return {};
  const RealRange range = corners(x, y, [](double a, double b) { return std::pow(a, b); });
  const bool divides_by_zero = x.holds(0) && y.low < 0;
  return divides_by_zero ? including(including(range, kInfinity), -kInfinity) : range;
}

RealRange remainder(const RealRange& x, const RealRange& y) {
  if (!x.is_point() || !y.is_point()) return {};
  return RealRange::of(x.low - y.low * std::floor(x.low / y.low));
}

RealRange magnitude(const RealRange& x) {
  RealRange range = monotone(x, [](double a) { return std::abs(a); });
  if (x.holds(0)) range.low = 0;
  return range;
}

// The ranges that real_functions.def names.

RealRange monotone(Op op, const RealRange& x, const RealRange&) {
  return monotone(x, [op](double a) { return ir::value_of_reals(op, a, a); });
}

// The range without values below `low`.
template <int low>
RealRange monotone_from(Op op, const RealRange& x, const RealRange& y) {
  if (x.is_none() || x.high < low) return RealRange::only_nan();
  const RealRange range =
      monotone(op, {std::max<double>(x.low, low), x.high, x.nan || x.low < low}, y);
  if (!x.holds(0)) return range;
  return including(including(range, ir::value_of_reals(op, 0.0, 0.0)),
                   ir::value_of_reals(op, -0.0, -0.0));
}

// Known for single numbers only.
RealRange anywhere(Op op, const RealRange& x, const RealRange&) {
  return x.is_point() ? RealRange::of(ir::value_of_reals(op, x.low, x.low)) : RealRange{};
}

RealRange wave(Op op, const RealRange& x, const RealRange& y) {
  if (x.is_none()) return RealRange::only_nan();
  return x.is_point() ? anywhere(op, x, y) : RealRange{-1, 1, x.nan || is_infinite(x)};
}

RealRange angle(Op op, const RealRange& x, const RealRange& y) {
  if (x.is_none() || y.is_none()) return RealRange::only_nan();
  if (x.is_point() && y.is_point() && x.low != 0) {
    return RealRange::of(ir::value_of_reals(op, x.low, y.low));
  }
  const double half = rounded(std::numbers::pi);
  return {-half, half, x.nan || y.nan};
}

}  // namespace

RealRange RealRange::of(double value) { return including(nothing(false), value); }

RealRange joined(const RealRange& x, const RealRange& y) {
  return {std::min(x.low, y.low), std::max(x.high, y.high), x.nan || y.nan};
}

RealRange real_range(Op op, const RealRange& x, const RealRange& y) {
  switch (op) {
    case Op::add_: return corners(x, y, [](double a, double b) { return a + b; });
    case Op::sub_: return corners(x, y, [](double a, double b) { return a - b; });
    case Op::mul_: return product(x, y);
    case Op::div_: return quotient(x, y);
    case Op::floordiv_: return monotone(quotient(x, y), [](double a) { return std::floor(a); });
    case Op::mod_: return remainder(x, y);
    case Op::pow_: return power(x, y);
    case Op::min_: return corners(x, y, [](double a, double b) { return std::min(a, b); });
    case Op::max_: return corners(x, y, [](double a, double b) { return std::max(a, b); });
    case Op::neg_:
    case Op::floor_:
    case Op::ceil_: return monotone(op, x, y);
    case Op::abs_: return magnitude(x);
#define ATTN_REAL_FUNCTION(name, id, operands, doc, value, derivative, slopes, range, ...) \
  case Op::name##_:                                                                        \
    return range(op, x, y);
#include "compiler/ir/real_functions.def"
#undef ATTN_REAL_FUNCTION
    default: return {};
  }
}

Range compared(Op op, const RealRange& x, const RealRange& y) {
  constexpr Range kEither{0, 1}, kTrue{1, 1}, kFalse{0, 0};
  const bool swaps = op == Op::gt_ || op == Op::ge_;
  const RealRange& a = swaps ? y : x;
  const RealRange& b = swaps ? x : y;
  const bool nan = x.nan || y.nan;
  switch (op) {
    case Op::lt_:
    case Op::gt_:
      if (a.low >= b.high) return kFalse;
      return a.high < b.low && !nan ? kTrue : kEither;
    case Op::le_:
    case Op::ge_:
      if (a.low > b.high) return kFalse;
      return a.high <= b.low && !nan ? kTrue : kEither;
    case Op::eq_:
      if (a.low > b.high || b.low > a.high) return kFalse;
      return a.is_point() && b.is_point() ? kTrue : kEither;
    case Op::ne_:
      if (a.low > b.high || b.low > a.high) return kTrue;
      return a.is_point() && b.is_point() ? kFalse : kEither;
    default: return kEither;
  }
}

namespace {

// Ordered: the worst operand decides.
enum class Kind : std::uint8_t { finite, infinite, anything };

class FiniteAnalysis {
 public:
  FiniteAnalysis(const ir::Attention& attention, Score score)
      : attention_(attention), score_(score) {}

  Kind kind_of(ExprId root) {
    const ExprId roots[] = {root};
    for (const ExprId id : ir::reachable(attention_.dag, roots)) {
      if (attention_.dag[id].type == ir::Type::real) kinds_[id] = kind_of_node(id);
    }
    return kinds_[root];
  }

 private:
  Kind worst(const ir::Node& node) const {
    Kind kind = Kind::finite;
    for (const ExprId operand : node.operands) {
      if (const auto found = kinds_.find(operand); found != kinds_.end()) {
        kind = std::max(kind, found->second);
      }
    }
    return kind;
  }

  // Whether the value is not zero as f32, which kernels compute in.
  static bool is_not_zero(double value) {
    const auto stored = static_cast<float>(value);
    return stored != 0 && std::isfinite(stored);
  }
  bool is_not_zero(ExprId id) const {
    const ir::Node& node = attention_.dag[id];
    if (node.is(Op::const_real_)) return is_not_zero(attention_.dag.real_of(id));
    if (!node.is(Op::to_real_) || attention_.dag[node.operands[0]].type != ir::Type::integer) {
      return false;
    }
    const Range range = range_of(attention_, node.operands[0]);
    return range.low > 0 || range.high < 0;
  }

  // A sum or product with an infinite operand may be NaN (inf - inf, 0 inf), unless the other
  // operand is a number that cannot be 0.
  Kind kind_of_product(const ir::Node& node) const {
    const Kind kind = worst(node);
    const bool harmless = is_not_zero(node.operands[0]) || is_not_zero(node.operands[1]);
    return kind == Kind::infinite && !harmless ? Kind::anything : kind;
  }

  // An infinite product times a scale of 0 is NaN.
  Kind kind_of_score() const {
    if (score_ == Score::finite) return Kind::finite;
    const auto scale = ir::fold_real(attention_.dag, attention_.scale);
    return scale && is_not_zero(*scale) ? Kind::infinite : Kind::anything;
  }

  Kind kind_of_node(ExprId id) const {
    const ir::Node& node = attention_.dag[id];
    const Kind operands = worst(node);
    switch (node.op) {
      case Op::const_real_:
        return std::isfinite(attention_.dag.real_of(id)) ? Kind::finite : Kind::infinite;
      case Op::score_: return kind_of_score();
      case Op::to_real_: return Kind::finite;
      case Op::min_:
      case Op::max_:
      case Op::neg_:
      case Op::abs_:
      case Op::floor_:
      case Op::ceil_:
      case Op::select_: return operands;
      case Op::add_:
      case Op::sub_:
      case Op::mul_: return kind_of_product(node);
      case Op::div_:
      case Op::floordiv_: return is_not_zero(node.operands[1]) ? operands : Kind::anything;
      case Op::mod_:
        return operands == Kind::finite && is_not_zero(node.operands[1]) ? operands
                                                                         : Kind::anything;
      default: return kind_of_function(node.op, operands);
    }
  }

  // Functions are finite if they are bounded and have no NaN.
  static Kind kind_of_function(Op op, Kind operands) {
    const double most = operands == Kind::finite ? kLargest : kInfinity;
    const RealRange all{-most, most, operands == Kind::anything};
    const RealRange range = real_range(op, all, all);
    const bool bounded = range.low >= -kLargest && range.high <= kLargest && !range.nan;
    return ir::find_real_function(op) != nullptr && bounded ? Kind::finite : Kind::anything;
  }

  const ir::Attention& attention_;
  Score score_;
  std::map<ExprId, Kind> kinds_;  // of real nodes
};

}  // namespace

bool is_finite(const ir::Attention& attention, ExprId id, Score score) {
  return FiniteAnalysis(attention, score).kind_of(id) == Kind::finite;
}

}  // namespace attn::masks
