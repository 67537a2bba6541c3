#include "compiler/reference/operation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attn::reference {
namespace {

using ir::Op;
using ir::Type;

constexpr double kMax = std::numeric_limits<std::int32_t>::max();
constexpr double kMin = std::numeric_limits<std::int32_t>::min();

std::optional<double> integers(Op op, double x, double y) {
  const double operands[] = {x, y};
  return operation(op, Type::integer, operands);
}

TEST(Operation, IntegersWrapTo32Bits) {
  EXPECT_EQ(integers(Op::add_, kMax, 1), kMin);
  EXPECT_EQ(integers(Op::sub_, kMin, 1), kMax);
  EXPECT_EQ(integers(Op::mul_, kMax, kMax), 1);
  EXPECT_EQ(integers(Op::floordiv_, kMin, -1), kMin);
  EXPECT_EQ(integers(Op::shift_left_, 1, 31), kMin);
  const double least[] = {kMin};
  EXPECT_EQ(operation(Op::neg_, Type::integer, least), kMin);
  EXPECT_EQ(operation(Op::abs_, Type::integer, least), kMin);
}

TEST(Operation, TruncatesTowardZero) {
  const auto truncated = [](double x) {
    const double operands[] = {x};
    return operation(Op::truncate_, Type::real, operands);
  };
  EXPECT_EQ(truncated(2.9), 2);
  EXPECT_EQ(truncated(-2.9), -2);
  EXPECT_EQ(truncated(kMin - 0.5), kMin);
  EXPECT_FALSE(std::signbit(*truncated(-0.5)));
  EXPECT_FALSE(truncated(kMax + 1));
  EXPECT_FALSE(truncated(std::numeric_limits<double>::quiet_NaN()));
}

TEST(Operation, HasNoValueWhereThereIsNone) {
  EXPECT_FALSE(integers(Op::floordiv_, 1, 0));
  EXPECT_FALSE(integers(Op::mod_, 1, 0));
  EXPECT_FALSE(integers(Op::shift_left_, 1, 32));
  EXPECT_FALSE(integers(Op::shift_right_, 1, -1));
}

}  // namespace
}  // namespace attn::reference
