#include "compiler/rewrite/cancelled.h"

#include <gtest/gtest.h>

#include "tests/unit/compiler/masks/example.h"

namespace attn::rewrite {
namespace {

using ir::ExprId;
using ir::Op;

// score + factor * (columns * kv_idx + rows * row + constant)
ir::Attention with_distance(ExprId (*factor)(ir::Dag&), std::int64_t columns, std::int64_t rows,
                            std::int64_t constant = 0) {
  ir::Attention attention = masks::testing::example(64, 96);
  ir::Dag& dag = attention.dag;
  const auto term = [&](std::int64_t by, Op leaf) {
    return dag.add(Op::mul_, {dag.integer(by), dag.leaf(leaf)});
  };
  ExprId index = dag.add(Op::add_, {term(columns, Op::column_), term(rows, Op::row_)});
  index = dag.add(Op::add_, {index, dag.integer(constant)});
  const ExprId product = dag.add(Op::mul_, {factor(dag), dag.add(Op::to_real_, {index})});
  attention.score = dag.add(Op::add_, {attention.score, product});
  return attention;
}

ExprId hundredth(ir::Dag& dag) { return dag.real(0.01); }
ExprId slope(ir::Dag& dag) {
  return dag.add(Op::exp2_, {dag.add(Op::neg_, {dag.add(Op::to_real_, {dag.leaf(Op::head_)})})});
}
ExprId steep(ir::Dag& dag) { return dag.real(43); }
ExprId of_row(ir::Dag& dag) { return dag.add(Op::to_real_, {dag.leaf(Op::row_)}); }

TEST(Cancelled, TheRowsPartOfADistanceGoes) {
  const auto cancelled = without_cancelled(with_distance(hundredth, 1, -1, 3));
  ASSERT_TRUE(cancelled);
  EXPECT_EQ(ir::to_source(cancelled->attention, cancelled->attention.score),
            "score + 0.01 * kv_idx");
  EXPECT_EQ(ir::to_source(cancelled->attention, cancelled->term), "0.01 * (q_idx * -1 + 3)");
}

TEST(Cancelled, NothingWithoutSoftmax) {
  ir::Attention attention = with_distance(hundredth, 1, -1, 3);
  attention.normalize = ir::Normalize::sigmoid;
  EXPECT_FALSE(without_cancelled(attention));
}

TEST(Cancelled, FactorsOfTheHeadAreKnown) {
  EXPECT_TRUE(without_cancelled(with_distance(slope, 1, -1)));
  EXPECT_FALSE(without_cancelled(with_distance(of_row, 1, -1)));
}

// The index fits 32 bits, its parts do not: 96 * 40000000, and values below -2^31.
TEST(Cancelled, NothingWhereAPartWouldWrapAround) {
  const auto tiny = [](ir::Dag& dag) { return dag.real(1e-9); };
  EXPECT_TRUE(without_cancelled(with_distance(tiny, 20000000, -1, -950000000)));
  EXPECT_FALSE(without_cancelled(with_distance(tiny, 40000000, -1, -1900000000)));
  EXPECT_FALSE(without_cancelled(with_distance(tiny, 1, 40000000, -1900000000)));
}

TEST(Cancelled, NothingWhereTheColumnsPartWouldBeTooLarge) {
  EXPECT_TRUE(without_cancelled(with_distance(steep, -1, 1)));  // 43 * 95 is 4085
  EXPECT_FALSE(without_cancelled(with_distance(steep, 2, -1)));
}

TEST(Cancelled, NothingWhereThereIsNoSuchPart) {
  EXPECT_FALSE(without_cancelled(with_distance(hundredth, 1, 0)));
  EXPECT_FALSE(without_cancelled(with_distance(hundredth, 0, 1)));
  EXPECT_FALSE(without_cancelled(masks::testing::example(8, 8)));
}

TEST(Cancelled, NothingWhereWeightsDoNotAddUpToOneOrMaxIsWanted) {
  ir::Attention attention = with_distance(hundredth, 1, -1);
  attention.wants_max = true;
  EXPECT_FALSE(without_cancelled(attention));
  attention.wants_max = false;
  attention.sink = attention.dag.real(0.5);
  EXPECT_FALSE(without_cancelled(attention));
}

TEST(Cancelled, WhatIsSubtractedIsTakenWithItsSign) {
  ir::Attention attention = with_distance(hundredth, 1, -1);
  const ir::Node sum = attention.dag[attention.score];
  attention.score = attention.dag.add(Op::sub_, {sum.operands[0], sum.operands[1]});
  const auto cancelled = without_cancelled(attention);
  ASSERT_TRUE(cancelled);
  EXPECT_EQ(ir::to_source(cancelled->attention, cancelled->term), "-(0.01 * (q_idx * -1))");
}

}  // namespace
}  // namespace attn::rewrite
