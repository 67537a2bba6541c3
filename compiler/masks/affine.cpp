#include "compiler/masks/affine.h"

#include <algorithm>

namespace attn::masks {
namespace {

using ir::Op;

bool is_constant(const Affine& x) { return x == Affine{0, 0, x.constant}; }

// Coefficients come from expressions that fit 32 bits, so products and sums of two fit 64 bits.
Affine scaled(const Affine& x, std::int64_t factor) {
  return {x.row * factor, x.column * factor, x.constant * factor, x.length_q * factor,
          x.length_kv * factor};
}

Affine sum(const Affine& x, const Affine& y) {
  return {x.row + y.row, x.column + y.column, x.constant + y.constant, x.length_q + y.length_q,
          x.length_kv + y.length_kv};
}

std::optional<Affine> product(const Affine& x, const Affine& y) {
  if (is_constant(y)) return scaled(x, y.constant);
  if (is_constant(x)) return scaled(y, x.constant);
  return std::nullopt;
}

// factor * x, for 0 <= x <= largest.
struct Term {
  std::int64_t factor;
  std::int64_t largest;
};

// Whether the product lies within 33 bits, so that sums stay exact, and the factor within 32, so
// that it can be a constant: also that of an index that is always 0.
bool term_fits(const Term& term) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 33;
  return std::abs(term.factor) <= INT32_MAX &&
         (term.largest <= 0 || std::abs(term.factor) <= kLimit / term.largest);
}

bool fits(const ir::Dims& dims, const Affine& x) {
  const std::int64_t rows = dims.get(ir::Dim::Sq).value_or(INT32_MAX);
  const std::int64_t columns = dims.get(ir::Dim::Skv).value_or(INT32_MAX);
  std::int64_t low = x.constant, high = x.constant;
  for (const Term& term : {Term{x.row, rows - 1}, Term{x.column, columns - 1},
                           Term{x.length_q, rows}, Term{x.length_kv, columns}}) {
    if (!term_fits(term)) return false;
    const std::int64_t end = term.factor * term.largest;
    low += std::min<std::int64_t>(end, 0);
    high += std::max<std::int64_t>(end, 0);
  }
  return low > INT32_MIN && high <= INT32_MAX;
}

std::optional<Affine> combine(const ir::Attention& attention, const ir::Node& node) {
  const auto x = affine_of(attention, node.operands[0]);
  if (!x) return std::nullopt;
  if (node.is(Op::neg_)) return scaled(*x, -1);
  const auto y = affine_of(attention, node.operands[1]);
  if (!y) return std::nullopt;
  if (node.is(Op::mul_)) return product(*x, *y);
  return sum(*x, node.is(Op::sub_) ? scaled(*y, -1) : *y);
}

// A load of lengths_q or lengths_kv at the batch of the score.
std::optional<Affine> length_of(const ir::Attention& attention, ir::ExprId id) {
  const ir::Node& node = attention.dag[id];
  if (node.operands.size() != 1 || !attention.dag[node.operands[0]].is(Op::batch_)) {
    return std::nullopt;
  }
  const std::string& name = attention.dag.symbol_of(id);
  if (attention.lengths_q && name == ir::kLengthsQ) return Affine{0, 0, 0, 1, 0};
  if (attention.lengths_kv && name == ir::kLengthsKv) return Affine{0, 0, 0, 0, 1};
  return std::nullopt;
}

std::optional<Affine> form_of(const ir::Attention& attention, ir::ExprId id) {
  const ir::Node& node = attention.dag[id];
  switch (node.op) {
    case Op::const_int_: return Affine{0, 0, attention.dag.integer_of(id)};
    case Op::row_: return Affine{1, 0, 0};
    case Op::column_: return Affine{0, 1, 0};
    case Op::load_: return length_of(attention, id);
    case Op::neg_:
    case Op::add_:
    case Op::sub_:
    case Op::mul_: return combine(attention, node);
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<Affine> affine_of(const ir::Attention& attention, ir::ExprId id) {
  const std::optional<Affine> form = form_of(attention, id);
  return form && fits(attention.dims, *form) ? form : std::nullopt;
}

}  // namespace attn::masks
