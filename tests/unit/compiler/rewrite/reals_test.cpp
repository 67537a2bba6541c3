#include "compiler/rewrite/reals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <variant>
#include <vector>

#include "compiler/ir/value.h"
#include "tests/unit/compiler/masks/example.h"
#include "tests/unit/compiler/masks/random_mask.h"

namespace attn::rewrite {
namespace {

using ir::ExprId;
using ir::Op;
using Value = std::variant<bool, std::int64_t, float>;  // reals in f32, as in a kernel

float real_of(Op op, float x, float y) {
  switch (op) {
    case Op::add_: return x + y;
    case Op::sub_: return x - y;
    case Op::mul_: return x * y;
    case Op::min_: return std::fmin(x, y);
    case Op::max_: return std::fmax(x, y);
    case Op::neg_: return -x;
    case Op::abs_: return std::fabs(x);
    case Op::floor_: return std::floor(x);
    default: ADD_FAILURE(); return 0;
  }
}

bool compared(Op op, float x, float y) {
  switch (op) {
    case Op::lt_: return x < y;
    case Op::le_: return x <= y;
    case Op::gt_: return x > y;
    case Op::ge_: return x >= y;
    case Op::eq_: return x == y;
    default: return x != y;
  }
}

Value evaluated(const ir::Attention& attention, ExprId id, std::int64_t row, std::int64_t column) {
  const ir::Dag& dag = attention.dag;
  const ir::Node& node = dag[id];
  const auto operand = [&](std::size_t i) {
    return evaluated(attention, node.operands[i], row, column);
  };
  if (node.is(Op::row_)) return row;
  if (node.is(Op::column_)) return column;
  if (node.is(Op::const_real_)) return static_cast<float>(dag.real_of(id));
  if (node.is(Op::const_int_)) return dag.integer_of(id);
  if (node.is(Op::const_bool_)) return dag.boolean_of(id);
  if (node.is(Op::to_real_)) return static_cast<float>(std::get<std::int64_t>(operand(0)));
  if (dag[node.operands.back()].type == ir::Type::real) {
    const float x = std::get<float>(operand(0));
    const float y = node.operands.size() > 1 ? std::get<float>(operand(1)) : 0;
    if (node.type == ir::Type::boolean) return compared(node.op, x, y);
    return real_of(node.op, x, y);
  }
  std::vector<ir::Constant> operands;
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    const Value value = operand(i);
    if (std::holds_alternative<bool>(value))
      operands.emplace_back(std::get<bool>(value));
    else
      operands.emplace_back(std::get<std::int64_t>(value));
  }
  const ir::Constant folded = *ir::fold(node.op, operands);
  if (std::holds_alternative<bool>(folded)) return std::get<bool>(folded);
  return std::get<std::int64_t>(folded);
}

bool divides(const ir::Attention& attention) {
  for (const ExprId id : ir::reachable(attention.dag, attention.masks)) {
    const ir::Node& node = attention.dag[id];
    if (node.is(Op::floordiv_) || node.is(Op::mod_)) return true;
  }
  return false;
}

TEST(RealIndices, OfRandomMasksGiveTheSameInFloats) {
  std::mt19937_64 random(3);
  int changed = 0;
  for (int i = 0; i < 500; ++i) {
    ir::Attention attention = masks::testing::example(40, 40);
    masks::testing::RandomMask mask(attention, random);
    attention.masks = {mask.boolean(1)};
    const ir::Attention real = with_real_indices(attention);
    if (real.masks != attention.masks) ++changed;
    for (std::int64_t row = 0; row < 40; row += 3) {
      for (std::int64_t column = 0; column < 40; ++column) {
        ASSERT_EQ(evaluated(real, real.masks[0], row, column),
                  evaluated(attention, attention.masks[0], row, column))
            << ir::to_source(attention, attention.masks[0]) << " at " << row << ", " << column
            << " became " << ir::to_source(real, real.masks[0]);
      }
    }
  }
  EXPECT_GT(changed, 100);
}

// The quotient next to every integer, for every kind of divisor, up to the last supported row.
TEST(RealIndices, QuotientsAreExactUpToTheLastRow) {
  for (const std::int64_t divisor :
       {1, 2, 3, 7, 10, 49, 97, 255, 256, 1000, 4099, 65521, 1048577}) {
    ir::Attention attention = masks::testing::example((1 << 21) - 1, 1);
    ir::Dag& dag = attention.dag;
    const ExprId quotient = dag.add(Op::floordiv_, {dag.leaf(Op::row_), dag.integer(divisor)});
    attention.masks = {dag.add(Op::eq_, {quotient, dag.integer(5)})};
    const ir::Attention real = with_real_indices(attention);
    ASSERT_FALSE(divides(real));
    const ExprId made = real.dag[real.masks[0]].operands[0];
    const auto check = [&](std::int64_t row) {
      if (row < 0 || row >= (1 << 21) - 1) return;
      ASSERT_EQ(std::get<float>(evaluated(real, made, row, 0)), static_cast<float>(row / divisor))
          << row << " // " << divisor;
    };
    const std::int64_t step = std::max<std::int64_t>(1, (1 << 21) / divisor / 20000);
    for (std::int64_t n = 0; n * divisor < (1 << 21); n += step) {
      for (std::int64_t off = -1; off <= 1; ++off) check(n * divisor + off);
    }
    check((1 << 21) - 2);
  }
}

TEST(RealIndices, WhatIsNotExactOrReadsTensorsStays) {
  ir::Attention attention = masks::testing::example(1 << 22, 16);
  ir::Dag& dag = attention.dag;
  const auto mask_of = [&](ExprId x) {
    attention.masks = {dag.add(Op::eq_, {dag.add(Op::mod_, {x, dag.integer(4)}), dag.integer(0)})};
    return with_real_indices(attention).masks == attention.masks;
  };
  EXPECT_TRUE(mask_of(dag.leaf(Op::row_)));
  EXPECT_FALSE(mask_of(dag.leaf(Op::column_)));
  attention.tensors.push_back({"doc", DType::i32, {dag.integer(16)}, {}});
  const ExprId index[] = {dag.leaf(Op::column_)};
  EXPECT_TRUE(mask_of(dag.add_symbol(Op::load_, "doc", ir::Type::integer, index)));
  attention.masks = {dag.add(Op::ge_, {dag.leaf(Op::row_), dag.leaf(Op::column_)})};
  EXPECT_EQ(with_real_indices(attention).masks, attention.masks);  // divides nothing
}

TEST(RealIndices, AreQuotedAsWritten) {
  ir::Attention attention = masks::testing::example(4096, 4096);
  ir::Dag& dag = attention.dag;
  const auto divided = [&](Op op, Op index, std::int64_t divisor) {
    return dag.add(op, {dag.leaf(index), dag.integer(divisor)});
  };
  const ExprId row = divided(Op::floordiv_, Op::row_, 512);
  for (const ExprId other :
       {divided(Op::floordiv_, Op::column_, 512), divided(Op::mod_, Op::column_, 512),
        divided(Op::floordiv_, Op::column_, 7), divided(Op::mod_, Op::column_, 100),
        dag.add(Op::sub_, {dag.integer(2), divided(Op::mod_, Op::column_, 3)})}) {
    attention.masks = {dag.add(Op::le_, {row, other})};
    const std::string written = ir::to_source(attention, attention.masks[0]);
    const ir::Attention reals = with_real_indices(attention);
    EXPECT_NE(ir::to_source(reals, reals.masks[0]), written);
    EXPECT_EQ(as_written(reals, reals.masks[0]), written);
  }
}

}  // namespace
}  // namespace attn::rewrite
