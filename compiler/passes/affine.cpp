#include "compiler/passes/affine.h"

#include <algorithm>

namespace attn::passes {
namespace {

using ir::Op;

bool is_constant(const Affine& x) { return x.row == 0 && x.column == 0; }

// Every coefficient is that of an expression that fits 32 bits, so no product or sum of two of them
// leaves 64.
Affine scaled(const Affine& x, std::int64_t factor) {
  return {x.row * factor, x.column * factor, x.constant * factor};
}

Affine sum(const Affine& x, const Affine& y) {
  return {x.row + y.row, x.column + y.column, x.constant + y.constant};
}

std::optional<Affine> product(const Affine& x, const Affine& y) {
  if (is_constant(y)) return scaled(x, y.constant);
  if (is_constant(x)) return scaled(y, x.constant);
  return std::nullopt;
}

// Whether factor * index lies within 33 bits for every index below the size, so that sums stay
// exact.
bool term_fits(std::int64_t factor, std::optional<std::int64_t> size) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 33;
  const std::int64_t last = size.value_or(INT32_MAX) - 1;
  return last <= 0 || std::abs(factor) <= kLimit / last;
}

bool fits(const ir::Dims& dims, const Affine& x) {
  const auto rows = dims.get(ir::Dim::Sq), columns = dims.get(ir::Dim::Skv);
  if (!term_fits(x.row, rows) || !term_fits(x.column, columns)) return false;
  const std::int64_t row = x.row * (rows.value_or(INT32_MAX) - 1);
  const std::int64_t column = x.column * (columns.value_or(INT32_MAX) - 1);
  const std::int64_t low =
      x.constant + std::min<std::int64_t>(row, 0) + std::min<std::int64_t>(column, 0);
  const std::int64_t high =
      x.constant + std::max<std::int64_t>(row, 0) + std::max<std::int64_t>(column, 0);
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

std::optional<Affine> form_of(const ir::Attention& attention, ir::ExprId id) {
  const ir::Node& node = attention.dag[id];
  switch (node.op) {
    case Op::const_int_: return Affine{0, 0, attention.dag.integer_of(id)};
    case Op::row_: return Affine{1, 0, 0};
    case Op::column_: return Affine{0, 1, 0};
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

}  // namespace attn::passes
