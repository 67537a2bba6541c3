#include "compiler/passes/affine.h"

#include <gtest/gtest.h>

#include "tests/unit/compiler/passes/example.h"

namespace attn::passes {
namespace {

using ir::Op;

class AffineTest : public ::testing::Test {
 protected:
  ir::Attention attention_ = testing::example(8, 8);
  ir::Dag& dag_ = attention_.dag;
  ir::ExprId row_ = dag_.leaf(Op::row_);
  ir::ExprId column_ = dag_.leaf(Op::column_);
};

TEST_F(AffineTest, CollectsCoefficientsThroughSumsAndProducts) {
  const auto twice =
      dag_.add(Op::mul_, {dag_.integer(2), dag_.add(Op::add_, {row_, dag_.integer(3)})});
  const auto id = dag_.add(Op::sub_, {twice, dag_.add(Op::neg_, {column_})});
  EXPECT_EQ(affine_of(dag_, id), (Affine{2, 1, 6}));
}

TEST_F(AffineTest, RefusesProductsOfIndices) {
  EXPECT_EQ(affine_of(dag_, dag_.add(Op::mul_, {row_, column_})), std::nullopt);
}

TEST_F(AffineTest, RefusesOtherLeaves) {
  EXPECT_EQ(affine_of(dag_, dag_.leaf(Op::batch_)), std::nullopt);
  EXPECT_EQ(affine_of(dag_, dag_.add(Op::mod_, {row_, dag_.integer(2)})), std::nullopt);
}

}  // namespace
}  // namespace attn::passes
