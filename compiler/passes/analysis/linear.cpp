#include "compiler/passes/analysis/linear.h"

#include <algorithm>
#include <cstdlib>

#include "compiler/passes/analysis/floor_div.h"

namespace attn::passes {
namespace {

using ir::Dim;
using ir::ExprId;
using ir::Node;
using ir::Op;

// Limits within which products and sums of two fit 64 bits.
constexpr std::int64_t kMostFactor = std::int64_t{1} << 30;
constexpr std::int64_t kMostConstant = std::int64_t{1} << 31;
constexpr std::int64_t kMostTerm = std::int64_t{1} << 50;  // of a range: kMostTerms fit 64 bits
constexpr std::size_t kMostTerms = 1024;

bool is_small(const Linear& sum) {
  const auto small = [](const auto& term) { return std::abs(term.second) <= kMostFactor; };
  return sum.terms.size() <= kMostTerms && std::abs(sum.constant) <= kMostConstant &&
         std::ranges::all_of(sum.terms, small);
}

Range scaled_range(const Range& range, std::int64_t factor) {
  const auto [low, high] = std::minmax({range.low * factor, range.high * factor});
  return {low, high};
}

bool is_narrow(const Range& range) { return range.low >= -kMostTerm && range.high <= kMostTerm; }

Range sum_of(const Range& x, const Range& y) { return {x.low + y.low, x.high + y.high}; }

// The range of index * factor + size * size_factor, for 0 <= index < size.
Range below_open_size(std::int64_t factor, std::int64_t size_factor) {
  const std::int64_t largest = INT32_MAX;
  const auto [low, high] =
      std::minmax({size_factor, size_factor * largest,
                   (factor + size_factor) * largest - factor});  // index 0, 0 and size - 1
  return {low, high};
}

// Whether the terms of `part` are among those of `sum`.
bool is_part(const Linear& part, const Linear& sum) {
  return std::ranges::all_of(part.terms, [&](const auto& term) {
    const auto own = sum.terms.find(term.first);
    return own != sum.terms.end() && own->second == term.second;
  });
}

}  // namespace

Linear linear_constant(std::int64_t value) { return {{}, value}; }

Linear linear_term(ir::ExprId id, std::int64_t factor) { return {{{id, factor}}, 0}; }

Linear operator+(const Linear& x, const Linear& y) {
  Linear sum = x;
  sum.constant += y.constant;
  for (const auto& [id, factor] : y.terms) {
    const auto term = sum.terms.try_emplace(id, 0).first;
    term->second += factor;
    if (term->second == 0) sum.terms.erase(term);
  }
  return sum;
}

Linear operator*(const Linear& x, std::int64_t factor) {
  if (factor == 0) return {};
  Linear product = x;
  product.constant *= factor;
  for (auto& term : product.terms) term.second *= factor;
  return product;
}

Linear operator-(const Linear& x, const Linear& y) { return x + y * -1; }

const Linear& LinearForms::of(ExprId id) {
  if (const auto known = forms_.find(id); known != forms_.end()) return known->second;
  Linear form = made(id);
  if (!is_small(form)) form = linear_term(id);
  return forms_.emplace(id, std::move(form)).first->second;
}

Linear LinearForms::made(ExprId id) {
  const Node node = attention_.dag[id];
  switch (node.op) {
    case Op::const_int_: return linear_constant(attention_.dag.integer_of(id));
    case Op::neg_: return of(node.operands[0]) * -1;
    case Op::add_: return of(node.operands[0]) + of(node.operands[1]);
    case Op::sub_: return of(node.operands[0]) - of(node.operands[1]);
    case Op::mul_: return product(id);
    case Op::floordiv_:
    case Op::mod_: return division(id);
    default: return linear_term(id);
  }
}

Linear LinearForms::product(ExprId id) {
  const Node node = attention_.dag[id];
  const Linear x = of(node.operands[0]), y = of(node.operands[1]);
  if (y.terms.empty()) return x * y.constant;
  if (x.terms.empty()) return y * x.constant;
  return linear_term(id);
}

// x // y and x % y for a constant y, if x // y is the same for all x.
Linear LinearForms::division(ExprId id) {
  const Node node = attention_.dag[id];
  Linear own = linear_term(id);
  const Linear divisor = of(node.operands[1]);
  if (!divisor.terms.empty() || divisor.constant <= 0) return own;
  const Linear value = value_of(node.operands[0]);
  const std::optional<Range> range = range_of(value);
  if (!range) return own;
  const Linear quotient{{}, floor_div(range->low, divisor.constant)};
  if (quotient.constant != floor_div(range->high, divisor.constant)) return own;
  return node.is(Op::floordiv_) ? quotient : value - quotient * divisor.constant;
}

std::optional<Range> LinearForms::range_of(const Linear& sum) {
  const std::optional<Range> range = range_of_terms(sum);
  for (const auto& term : sum.terms) {
    const std::optional<Range> other = range_of_remainder(sum, term.first);
    if (!other) continue;
    if (!range) return other;  // of the first only: the recursion finds others
    return Range{std::max(range->low, other->low), std::min(range->high, other->high)};
  }
  return range;
}

// Whether it is x // n or x % n, as `op` says, for a constant n > 0.
bool LinearForms::is_by_constant(Op op, ExprId id) const {
  const Node& node = attention_.dag[id];
  if (!node.is(op) || node.type != ir::Type::integer) return false;
  const Node& divisor = attention_.dag[node.operands[1]];
  return divisor.is(Op::const_int_) && std::get<std::int64_t>(divisor.attribute) > 0;
}

// The range of a sum with factor * (x // n * n - x), which is -factor * (x % n).
std::optional<Range> LinearForms::range_of_remainder(const Linear& sum, ExprId quotient) {
  if (!is_by_constant(Op::floordiv_, quotient)) return std::nullopt;
  const Node node = attention_.dag[quotient];
  const std::int64_t divisor = attention_.dag.integer_of(node.operands[1]);
  const std::int64_t factor = sum.terms.at(quotient) / divisor;
  if (factor == 0) return std::nullopt;
  const Linear part = (linear_term(quotient, divisor) - value_of(node.operands[0])) * factor;
  if (!is_part(part, sum)) return std::nullopt;
  const std::optional<Range> rest = range_of(sum - part);
  if (!rest) return std::nullopt;
  return sum_of(*rest, scaled_range({0, divisor - 1}, -factor));
}

std::optional<Range> LinearForms::range_of_terms(const Linear& sum) {
  if (!is_small(sum)) return std::nullopt;
  Range range{sum.constant, sum.constant};
  std::map<ExprId, std::int64_t> terms = sum.terms;
  for (const auto& [index, dim] :
       {std::pair(Op::row_, Dim::Sq), std::pair(Op::column_, Dim::Skv)}) {
    if (attention_.dims.get(dim)) continue;
    const auto taken = [&](ExprId id) {
      const auto term = terms.find(id);
      if (term == terms.end()) return std::int64_t{0};
      return terms.extract(term).mapped();
    };
    const std::int64_t factor = taken(attention_.dag.leaf(index));
    const std::int64_t size_factor = taken(attention_.dag.dim(std::string(ir::to_string(dim))));
    const Range both = below_open_size(factor, size_factor);
    if (!is_narrow(both)) return std::nullopt;
    range = sum_of(range, both);
  }
  for (const auto& [id, factor] : terms) {
    const Range term = scaled_range(range_of(id), factor);
    if (!is_narrow(term)) return std::nullopt;
    range = sum_of(range, term);
  }
  return range;
}

bool LinearForms::fits(const Linear& sum) {
  const std::optional<Range> range = range_of(sum);
  return range && range->low >= INT32_MIN && range->high <= INT32_MAX;
}

Linear LinearForms::value_of(ExprId id) {
  const Linear& form = of(id);
  return fits(form) ? form : linear_term(id);
}

Linear LinearForms::size(Dim dim) {
  if (const auto size = attention_.dims.get(dim)) return linear_constant(*size);
  return linear_term(attention_.dag.dim(std::string(ir::to_string(dim))));
}

Linear LinearForms::rejoined(const Linear& sum) {
  Linear joined = sum;
  for (const auto& [id, factor] : sum.terms) {
    if (!is_by_constant(Op::mod_, id)) continue;
    const Node node = attention_.dag[id];
    const Linear whole = of(builder_.make(Op::floordiv_, node.operands, node.pos)) *
                         (attention_.dag.integer_of(node.operands[1]) * factor);
    if (whole.terms.size() != 1 || !is_part(whole, sum)) continue;
    joined = joined - whole - linear_term(id, factor) + value_of(node.operands[0]) * factor;
  }
  return joined;
}

// Arithmetic in 32 bits: sums whose value fits are right, whatever their parts do.
ExprId LinearForms::constant(std::int64_t value) {
  return attention_.dag.integer(static_cast<std::int32_t>(value));
}

ExprId LinearForms::multiple(ExprId id, std::int64_t factor) {
  return builder_.make(Op::mul_, {id, constant(factor)}, attention_.dag[id].pos);
}

ExprId LinearForms::expression(const Linear& sum) {
  std::optional<ExprId> made;
  for (const bool negative : {false, true}) {
    for (const auto& [id, factor] : sum.terms) {
      if ((factor < 0) != negative) continue;
      const ir::SourcePos pos = attention_.dag[id].pos;
      if (!made) {
        made = factor == -1 ? builder_.make(Op::neg_, {id}, pos) : multiple(id, factor);
      } else {
        made = builder_.make(negative ? Op::sub_ : Op::add_,
                             {*made, multiple(id, std::abs(factor))}, pos);
      }
    }
  }
  if (!made) return constant(sum.constant);
  if (sum.constant == 0) return *made;
  return builder_.make(sum.constant < 0 ? Op::sub_ : Op::add_,
                       {*made, constant(std::abs(sum.constant))}, attention_.dag[*made].pos);
}

std::optional<Linear> LinearForms::quotient(const Linear& sum, std::int64_t divisor) {
  Linear whole{{}, floor_div(sum.constant, divisor)};
  Linear rest{{}, sum.constant - whole.constant * divisor};
  for (const auto& [id, factor] : sum.terms) {
    const bool divides = factor % divisor == 0;
    (divides ? whole : rest).terms.emplace(id, divides ? factor / divisor : factor);
  }
  if (rest.terms.empty()) return whole;
  if (!fits(rest)) return std::nullopt;
  const ExprId divided =
      builder_.make(Op::floordiv_, {expression(rest), attention_.dag.integer(divisor)}, {});
  return whole + of(divided);
}

}  // namespace attn::passes
