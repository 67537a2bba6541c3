#include "compiler/masks/affine.h"

#include <gtest/gtest.h>

#include "tests/unit/compiler/masks/example.h"

namespace attn::masks {
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
  EXPECT_EQ(affine_of(attention_, id), (Affine{2, 1, 6}));
}

TEST_F(AffineTest, RefusesProductsOfIndices) {
  EXPECT_EQ(affine_of(attention_, dag_.add(Op::mul_, {row_, column_})), std::nullopt);
}

TEST_F(AffineTest, RefusesOtherLeaves) {
  EXPECT_EQ(affine_of(attention_, dag_.leaf(Op::batch_)), std::nullopt);
  EXPECT_EQ(affine_of(attention_, dag_.add(Op::mod_, {row_, dag_.integer(2)})), std::nullopt);
}

TEST_F(AffineTest, RefusesWhatCouldWrapAround) {
  const auto most = dag_.integer(INT32_MAX);
  EXPECT_EQ(affine_of(attention_, dag_.add(Op::add_, {row_, most})), std::nullopt);
  const auto fits = dag_.add(Op::sub_, {most, row_});
  EXPECT_EQ(affine_of(attention_, fits), (Affine{-1, 0, INT32_MAX}));
  // The sum fits again, but a part of it does not.
  const auto there_and_back = dag_.add(Op::sub_, {dag_.add(Op::add_, {row_, most}), most});
  EXPECT_EQ(affine_of(attention_, there_and_back), std::nullopt);
  const auto big =
      dag_.add(Op::mul_, {dag_.integer(1 << 30), dag_.add(Op::mul_, {dag_.integer(4), row_})});
  EXPECT_EQ(affine_of(attention_, big), std::nullopt);
}

TEST_F(AffineTest, AnOpenDimensionMayBeLarge) {
  attention_.dims.set(ir::Dim::Sq, std::nullopt);
  EXPECT_EQ(affine_of(attention_, row_), (Affine{1, 0, 0}));
  EXPECT_EQ(affine_of(attention_, dag_.add(Op::add_, {row_, dag_.integer(2)})), std::nullopt);
}

TEST_F(AffineTest, LengthsOfTheOwnBatchAreTerms) {
  attention_.lengths_q = attention_.lengths_kv = true;
  const auto length = [this](const char* name, ir::ExprId batch) {
    return dag_.add_symbol(Op::load_, name, ir::Type::integer, std::vector{batch});
  };
  const ir::ExprId batch = dag_.leaf(Op::batch_);
  const auto difference =
      dag_.add(Op::sub_, {length("lengths_kv", batch), length("lengths_q", batch)});
  EXPECT_EQ(affine_of(attention_, dag_.add(Op::add_, {row_, difference})),
            (Affine{1, 0, 0, -1, 1}));
  EXPECT_EQ(affine_of(attention_, length("lengths_q", dag_.integer(0))), std::nullopt);
  EXPECT_EQ(affine_of(attention_, length("doc", batch)), std::nullopt);
  EXPECT_EQ(affine_of(attention_, dag_.add(Op::mul_, {row_, difference})), std::nullopt);
}

}  // namespace
}  // namespace attn::masks
