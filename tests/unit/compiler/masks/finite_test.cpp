#include <gtest/gtest.h>

#include <limits>

#include "compiler/masks/real_range.h"
#include "tests/unit/compiler/masks/example.h"

namespace attn::masks {
namespace {

using ir::ExprId;
using ir::Op;

class FiniteTest : public ::testing::Test {
 protected:
  // If scores are finite; if they may be infinite too.
  bool often(ExprId id) { return is_finite(attention_, id); }
  bool always(ExprId id) { return is_finite(attention_, id, Score::infinite); }

  ExprId real(double value) { return dag_.real(value); }
  ExprId of(Op op, ExprId a, ExprId b) { return dag_.add(op, {a, b}); }
  ExprId tanh(ExprId a) { return dag_.add(Op::tanh_, {a}); }
  ExprId as_real(ExprId integer) { return dag_.add(Op::to_real_, {integer}); }
  ExprId where(ExprId condition, ExprId x, ExprId y) {
    return dag_.add(Op::select_, {condition, x, y});
  }

  ir::Attention attention_ = testing::example(16, 32);
  ir::Dag& dag_ = attention_.dag;
  ExprId score_ = attention_.score;
  ExprId row_ = dag_.leaf(Op::row_);
  ExprId column_ = dag_.leaf(Op::column_);
  ExprId later_ = dag_.add(Op::lt_, {row_, column_});
  ExprId infinity_ = real(std::numeric_limits<double>::infinity());
};

TEST_F(FiniteTest, TheScoreIsWhatIsSaidOfIt) {
  EXPECT_TRUE(often(score_));
  EXPECT_FALSE(always(score_));
  EXPECT_TRUE(always(real(3)));
  EXPECT_FALSE(often(infinity_));
  EXPECT_TRUE(always(as_real(of(Op::sub_, row_, column_))));
}

// -inf times 0 is NaN, which nothing saturates.
TEST_F(FiniteTest, AnInfiniteProductTimesAScaleThatMayBeZero) {
  const ExprId saturated = tanh(score_);
  EXPECT_TRUE(always(saturated));
  attention_.scale = real(0);
  EXPECT_FALSE(always(saturated));
  EXPECT_TRUE(often(saturated));
  attention_.scale = real(1e-60);
  EXPECT_FALSE(always(saturated)) << "0 in f32";
  attention_.scale = real(-3);
  EXPECT_TRUE(always(saturated));
  attention_.params.push_back({"p", DType::f32, {}});
  attention_.scale = dag_.add_symbol(Op::param_, "p", ir::Type::real, {});
  EXPECT_FALSE(always(saturated));
}

TEST_F(FiniteTest, SumsAndProductsOfNumbersAre) {
  for (const Op op : {Op::add_, Op::sub_, Op::mul_}) {
    EXPECT_TRUE(often(of(op, score_, score_)));
    EXPECT_FALSE(always(of(op, score_, score_)));
  }
  EXPECT_TRUE(often(of(Op::max_, score_, as_real(row_))));
  EXPECT_TRUE(often(where(later_, score_, real(0))));
}

TEST_F(FiniteTest, WhatSaturatesTakesInfinitiesButNotNaN) {
  for (const Op op : {Op::tanh_, Op::sigmoid_, Op::erf_}) {
    EXPECT_TRUE(always(dag_.add(op, {score_})));
    EXPECT_TRUE(always(dag_.add(op, {of(Op::mul_, score_, real(0.5))})));
    EXPECT_TRUE(always(dag_.add(op, {of(Op::add_, score_, real(1))})));
    EXPECT_FALSE(always(dag_.add(op, {of(Op::sub_, score_, score_)})));
    EXPECT_FALSE(always(dag_.add(op, {of(Op::mul_, score_, real(0))})));
    EXPECT_FALSE(always(dag_.add(op, {of(Op::mul_, score_, as_real(row_))})));
  }
  const ExprId hidden = where(later_, dag_.add(Op::neg_, {infinity_}), score_);
  EXPECT_FALSE(often(hidden));
  EXPECT_TRUE(often(tanh(hidden)));
  EXPECT_FALSE(often(tanh(of(Op::add_, hidden, score_))));
}

TEST_F(FiniteTest, WavesTakeNumbersAlone) {
  EXPECT_TRUE(often(dag_.add(Op::sin_, {score_})));
  EXPECT_FALSE(always(dag_.add(Op::sin_, {score_})));
  EXPECT_FALSE(often(tanh(dag_.add(Op::cos_, {infinity_}))));
}

TEST_F(FiniteTest, QuotientsNeedADivisorThatIsNeverZero) {
  const ExprId place = of(Op::add_, row_, dag_.integer(1));
  for (const Op op : {Op::div_, Op::floordiv_, Op::mod_}) {
    EXPECT_TRUE(often(of(op, score_, real(-2))));
    EXPECT_TRUE(often(of(op, score_, as_real(place))));
    EXPECT_FALSE(often(of(op, score_, as_real(row_))));
    EXPECT_FALSE(often(of(op, score_, real(0))));
    EXPECT_FALSE(often(of(op, score_, score_)));
  }
}

// inf / 2 is inf, but inf % 2 is NaN.
TEST_F(FiniteTest, ARemainderOfInfinityIsNaN) {
  EXPECT_TRUE(always(tanh(of(Op::div_, score_, real(2)))));
  EXPECT_TRUE(always(tanh(of(Op::floordiv_, score_, real(2)))));
  EXPECT_FALSE(always(tanh(of(Op::mod_, score_, real(2)))));
}

TEST_F(FiniteTest, OtherFunctionsTensorsAndParamsAreUnknown) {
  for (const Op op : {Op::exp_, Op::log_, Op::sqrt_, Op::tan_}) {
    EXPECT_FALSE(often(dag_.add(op, {score_})));
  }
  attention_.tensors.push_back({"t", DType::f32, {dag_.integer(16)}, {}});
  const ExprId index[] = {row_};
  const ExprId load = dag_.add_symbol(Op::load_, "t", ir::Type::real, index);
  EXPECT_FALSE(often(of(Op::add_, score_, load)));
  EXPECT_FALSE(often(tanh(load)));
  EXPECT_FALSE(often(dag_.add_symbol(Op::param_, "p", ir::Type::real)));
  // A condition does not reach the value.
  EXPECT_TRUE(often(where(of(Op::lt_, load, score_), score_, real(0))));
}

}  // namespace
}  // namespace attn::masks
