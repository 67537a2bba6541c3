#include "compiler/reference/operation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/ir/fold.h"

namespace attn::reference {
namespace {

using ir::Op;
using ir::Rule;
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

bool same(double x, double y) {
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  return x == y && std::signbit(x) == std::signbit(y);
}

double as_number(const ir::Constant& constant) {
  return std::visit([](auto value) { return static_cast<double>(value); }, constant);
}

ir::Constant as_constant(Type type, double value) {
  if (type == Type::boolean) return value != 0;
  if (type == Type::integer) return static_cast<std::int64_t>(value);
  return value;
}

std::vector<double> samples(Type type) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (type == Type::boolean) return {0, 1};
  if (type == Type::integer) return {0, 1, -1, 2, 3, -7, 31, 32, 1 << 20, kMax, kMin};
  return {0.0,   -0.0,   1.0,       -1.5,       2.0,
          1e300, -1e300, kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()};
}

// Constant folding is an independent implementation: both agree wherever folding gives a value.
int compare_with_folding(Op op, Type type) {
  int folded = 0;
  for (double x : samples(type)) {
    for (double y : samples(type)) {
      std::vector<double> operands = {x, y};
      operands.resize(static_cast<std::size_t>(ir::info(op).operands));
      std::vector<ir::Constant> constants;
      for (double operand : operands) constants.push_back(as_constant(type, operand));
      const auto expected = ir::fold(op, constants);
      if (!expected) continue;
      ++folded;
      const auto actual = operation(op, type, operands);
      EXPECT_TRUE(actual && same(*actual, as_number(*expected)))
          << ir::info(op).name << " of " << x << ", " << y;
    }
  }
  return folded;
}

TEST(Operation, AgreesWithFolding) {
  for (Op op : ir::all_ops()) {
    const ir::OpInfo& row = ir::info(op);
    const bool is_structure = op == Op::and_ || op == Op::or_ || op == Op::select_;
    if (row.operands <= 0 || is_structure) continue;
    int folded = 0;
    for (Type type : {Type::boolean, Type::integer, Type::real}) {
      const std::vector<Type> types(static_cast<std::size_t>(row.operands), type);
      if (ir::result_type(row.rule, types)) folded += compare_with_folding(op, type);
    }
    EXPECT_GT(folded, 0) << row.name;
  }
}

}  // namespace
}  // namespace attn::reference
