#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/ir/attention.h"
#include "compiler/ir/value.h"

namespace attn::ir {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int32_t>::min();

std::optional<std::int64_t> integers(Op op, std::int64_t x, std::int64_t y) {
  const Constant operands[] = {x, y};
  const auto value = fold(op, operands);
  return value ? std::optional(std::get<std::int64_t>(*value)) : std::nullopt;
}

double reals(Op op, double x, double y) {
  const Constant operands[] = {x, y};
  return std::get<double>(*fold(op, operands));
}

TEST(Fold, DivisionFloorsAndModuloHasTheDivisorsSign) {
  EXPECT_EQ(integers(Op::floordiv_, 7, 2), 3);
  EXPECT_EQ(integers(Op::floordiv_, -7, 2), -4);
  EXPECT_EQ(integers(Op::floordiv_, 7, -2), -4);
  EXPECT_EQ(integers(Op::floordiv_, -7, -2), 3);
  EXPECT_EQ(integers(Op::floordiv_, -6, 2), -3);
  EXPECT_EQ(integers(Op::mod_, 7, 2), 1);
  EXPECT_EQ(integers(Op::mod_, -7, 2), 1);
  EXPECT_EQ(integers(Op::mod_, 7, -2), -1);
  EXPECT_EQ(integers(Op::mod_, -7, -2), -1);
  EXPECT_EQ(reals(Op::floordiv_, -7.5, 2), -4);
  EXPECT_EQ(reals(Op::mod_, -7.5, 2), 0.5);
}

TEST(Fold, LeavesWhatHasNoValue) {
  EXPECT_FALSE(integers(Op::floordiv_, 7, 0));
  EXPECT_FALSE(integers(Op::mod_, 7, 0));
  EXPECT_FALSE(integers(Op::shift_left_, 1, 32));
  EXPECT_FALSE(integers(Op::shift_right_, 1, -1));
  EXPECT_FALSE(integers(Op::add_, kMax, 1));
  EXPECT_FALSE(integers(Op::mul_, kMax, kMax));
  EXPECT_FALSE(integers(Op::floordiv_, kMin, -1));
}

TEST(Fold, Bits) {
  EXPECT_EQ(integers(Op::bit_and_, 12, 10), 8);
  EXPECT_EQ(integers(Op::bit_or_, 12, 10), 14);
  EXPECT_EQ(integers(Op::bit_xor_, 12, 10), 6);
  EXPECT_EQ(integers(Op::shift_left_, 3, 4), 48);
  EXPECT_EQ(integers(Op::shift_right_, -5, 1), -3);
}

TEST(Fold, NaNPassesThroughMinAndMax) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(reals(Op::min_, nan, 1)));
  EXPECT_TRUE(std::isnan(reals(Op::min_, 1, nan)));
  EXPECT_TRUE(std::isnan(reals(Op::max_, nan, 1)));
  EXPECT_TRUE(std::isnan(reals(Op::max_, 1, nan)));
  EXPECT_EQ(reals(Op::max_, -1, 2), 2);
}

TEST(Fold, WholeExpressions) {
  Dag dag;
  const ExprId width = dag.add(Op::mul_, {dag.integer(4), dag.integer(64)});
  EXPECT_EQ(fold_integer(dag, width), 256);
  const ExprId scale =
      dag.add(Op::div_, {dag.real(1), dag.add(Op::sqrt_, {dag.add(Op::to_real_, {width})})});
  EXPECT_EQ(fold_real(dag, scale), 0.0625);
  EXPECT_EQ(fold_integer(dag, scale), std::nullopt);
  EXPECT_EQ(fold_integer(dag, dag.add(Op::add_, {width, dag.dim("Sq")})), std::nullopt);
  Dims dims;
  dims.set(Dim::Sq, 44);
  EXPECT_EQ(fold_integer(dag, dag.add(Op::add_, {width, dag.dim("Sq")}), dims), 300);
  const ExprId overflow = dag.add(Op::mul_, {dag.integer(1 << 20), dag.integer(1 << 20)});
  EXPECT_EQ(fold_integer(dag, dag.add(Op::floordiv_, {overflow, width})), std::nullopt);
}

}  // namespace
}  // namespace attn::ir
