#include "compiler/ir/dag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace attn::ir {
namespace {

using ::testing::ElementsAre;

TEST(Dag, EqualExpressionsAreOneNode) {
  Dag dag;
  const ExprId row = dag.leaf(Op::row_, {1, 2});
  const ExprId sum = dag.add(Op::add_, {row, dag.integer(3)});
  EXPECT_EQ(dag.add(Op::add_, {dag.leaf(Op::row_, {9, 9}), dag.integer(3)}), sum);
  EXPECT_NE(dag.add(Op::add_, {dag.integer(3), row}), sum);
  EXPECT_EQ(dag[row].pos.line, 1u);  // where it was first written
}

TEST(Dag, NodesStayWhereTheyAre) {
  Dag dag;
  const Node& first = dag[dag.dim("Sq", {3, 4})];
  for (std::int64_t i = 0; i < 1000; ++i) dag.integer(i);
  EXPECT_EQ(&dag[0], &first);
  EXPECT_EQ(first.pos.line, 3u);
  EXPECT_EQ(dag.symbol_of(0), "Sq");
}

TEST(Dag, ConstantsDifferByTypeAndBits) {
  Dag dag;
  EXPECT_NE(dag.integer(1), dag.real(1));
  EXPECT_NE(dag.integer(1), dag.boolean(true));
  EXPECT_NE(dag.real(0.0), dag.real(-0.0));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(dag.real(nan), dag.real(-nan));
}

TEST(Dag, SymbolsDifferByNameAndIndex) {
  Dag dag;
  const ExprId row[] = {dag.leaf(Op::row_)};
  const ExprId column[] = {dag.leaf(Op::column_)};
  const ExprId load = dag.add_symbol(Op::load_, "doc", Type::integer, row);
  EXPECT_EQ(dag.add_symbol(Op::load_, "doc", Type::integer, row), load);
  EXPECT_NE(dag.add_symbol(Op::load_, "doc", Type::integer, column), load);
  EXPECT_NE(dag.add_symbol(Op::load_, "ids", Type::integer, row), load);
  EXPECT_EQ(dag.symbol_of(load), "doc");
}

TEST(Dag, ReachableIsAscendingAndLeavesTheRestOut) {
  Dag dag;
  const ExprId row = dag.leaf(Op::row_);
  dag.integer(7);
  const ExprId column = dag.leaf(Op::column_);
  const ExprId sum = dag.add(Op::add_, {column, row});
  const ExprId roots[] = {sum};
  EXPECT_THAT(reachable(dag, roots), ElementsAre(row, column, sum));
}

TEST(DagDeathTest, RefusesWhatDoesNotFit) {
  Dag dag;
  const ExprId one = dag.integer(1);
  const ExprId real = dag.real(1);
  EXPECT_EXIT(dag.add(Op::add_, {one, real}), testing::ExitedWithCode(70), "types do not fit");
  EXPECT_EXIT(dag.add(Op::add_, {one}), testing::ExitedWithCode(70), "1 operands");
  EXPECT_EXIT(dag.add(Op::const_int_, {}), testing::ExitedWithCode(70), "wrong attribute");
}

class ToSource : public ::testing::Test {
 protected:
  Dag dag_;
  ExprId score_ = dag_.leaf(Op::score_);
  ExprId row_ = dag_.leaf(Op::row_);
  ExprId column_ = dag_.leaf(Op::column_);
  ExprId cap_ = dag_.real(50);
};

TEST_F(ToSource, WritesTheLanguage) {
  const ExprId capped =
      dag_.add(Op::mul_, {cap_, dag_.add(Op::tanh_, {dag_.add(Op::div_, {score_, cap_})})});
  EXPECT_EQ(to_source(dag_, capped), "50.0 * tanh(score / 50.0)");
  const ExprId distance = dag_.add(Op::sub_, {row_, column_});
  const ExprId window = dag_.add(Op::and_, {dag_.add(Op::ge_, {row_, column_}),
                                            dag_.add(Op::lt_, {distance, dag_.integer(4096)})});
  EXPECT_EQ(to_source(dag_, window), "q_raw >= kv_idx && q_raw - kv_idx < 4096");
  const ExprId index[] = {dag_.leaf(Op::batch_),
                          dag_.add(Op::floordiv_, {column_, dag_.dim("Sq")})};
  const ExprId load = dag_.add_symbol(Op::load_, "doc", Type::boolean, index);
  EXPECT_EQ(to_source(dag_, dag_.add(Op::select_, {load, cap_, score_})),
            "where(doc[b, kv_idx // Sq], 50.0, score)");
}

TEST_F(ToSource, ParenthesesOnlyWhereNeeded) {
  const ExprId difference = dag_.add(Op::sub_, {row_, column_});
  EXPECT_EQ(to_source(dag_, dag_.add(Op::sub_, {difference, row_})), "q_raw - kv_idx - q_raw");
  EXPECT_EQ(to_source(dag_, dag_.add(Op::sub_, {row_, difference})), "q_raw - (q_raw - kv_idx)");
  EXPECT_EQ(to_source(dag_, dag_.add(Op::mul_, {difference, row_})), "(q_raw - kv_idx) * q_raw");
  EXPECT_EQ(to_source(dag_, dag_.add(Op::neg_, {difference})), "-(q_raw - kv_idx)");
  EXPECT_EQ(to_source(dag_, dag_.add(Op::pow_, {dag_.real(-2), score_})), "(-2.0) ** score");
  EXPECT_EQ(to_source(dag_, dag_.add(Op::bit_and_, {difference, row_})),
            "(q_raw - kv_idx) & q_raw");
}

TEST_F(ToSource, ConversionsOnlyWhereNothingElseSaysSo) {
  const ExprId distance = dag_.add(Op::to_real_, {dag_.add(Op::sub_, {row_, column_})});
  EXPECT_EQ(to_source(dag_, dag_.add(Op::add_, {score_, distance})), "score + (q_raw - kv_idx)");
  EXPECT_EQ(to_source(dag_, dag_.add(Op::sqrt_, {distance})), "sqrt(q_raw - kv_idx)");
  const ExprId row = dag_.add(Op::to_real_, {row_});
  EXPECT_EQ(to_source(dag_, dag_.add(Op::mul_, {row, row})), "q_raw * 1.0 * (q_raw * 1.0)");
  EXPECT_EQ(to_source(dag_, dag_.add(Op::to_real_, {dag_.add(Op::lt_, {row_, column_})})),
            "where(q_raw < kv_idx, 1.0, 0.0)");
}

TEST_F(ToSource, IsBounded) {
  ExprId sum = score_;
  for (int i = 0; i < 60; ++i) sum = dag_.add(Op::add_, {sum, sum});
  const std::string text = to_source(dag_, sum);
  EXPECT_LT(text.size(), 20000u);
  EXPECT_NE(text.find("..."), std::string::npos);
}

}  // namespace
}  // namespace attn::ir
