#include "compiler/masks/real_range.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace attn::masks {
namespace {

using ir::Op;

// Operations with a real value.
std::vector<Op> real_ops() {
  std::vector<Op> ops;
  for (const Op op : ir::all_ops()) {
    const ir::Rule rule = ir::info(op).rule;
    if (rule == ir::Rule::arithmetic || rule == ir::Rule::real_function) ops.push_back(op);
  }
  return ops;
}

bool contains(const RealRange& range, const RealRange& point) {
  if (point.is_none()) return range.nan;
  return range.low <= point.low && point.high <= range.high;
}

double any_number(std::mt19937& random) {
  constexpr double kNumbers[] = {-kInfinity, -0x1p126, -7.5, -2, -1, -0.25,   -0.0,     0,
                                 0.25,       1,        2,    3,  7,  0x1p126, kInfinity};
  return kNumbers[random() % std::size(kNumbers)];
}

RealRange any_range(std::mt19937& random) {
  const double a = any_number(random), b = any_number(random);
  return {std::min(a, b), std::max(a, b), random() % 8 == 0};
}

double inside(const RealRange& range, std::mt19937& random) {
  if (random() % 3 == 0) return random() % 2 == 0 ? range.low : range.high;
  for (;;) {
    if (const double number = any_number(random); range.holds(number)) return number;
  }
}

// Operations on numbers are operations on ranges of a single number.
TEST(RealRange, HoldsWhatNumbersInItGive) {
  std::mt19937 random(7);
  const std::vector<Op> ops = real_ops();
  for (int i = 0; i < 200000; ++i) {
    const Op op = ops[random() % ops.size()];
    const RealRange x = any_range(random), y = any_range(random);
    const double a = inside(x, random), b = inside(y, random);
    const RealRange one = real_range(op, RealRange::of(a), RealRange::of(b));
    const RealRange all = real_range(op, x, y);
    ASSERT_TRUE(contains(all, one))
        << ir::info(op).name << " of " << a << " in " << x.low << " .. " << x.high << " and " << b
        << " in " << y.low << " .. " << y.high << ": " << one.low << " is not in " << all.low
        << " .. " << all.high;
  }
}

TEST(RealRange, IsThatOfF32) {
  EXPECT_EQ(RealRange::of(1e39).low, kInfinity);
  EXPECT_EQ(RealRange::of(-1e39).high, -kInfinity);
  EXPECT_EQ(RealRange::of(1e-60).low, 0);
  const RealRange large = RealRange::of(3e38);
  EXPECT_EQ(real_range(Op::add_, large, large).low, kInfinity);
  EXPECT_EQ(real_range(Op::exp_, RealRange::of(100), {}).low, kInfinity);
}

TEST(RealRange, KnowsWhatIsNoNumber) {
  const RealRange infinite = RealRange::of(kInfinity), zero = RealRange::of(0);
  EXPECT_TRUE(real_range(Op::sub_, infinite, infinite).is_none());
  EXPECT_TRUE(real_range(Op::mul_, zero, infinite).is_none());
  EXPECT_TRUE(real_range(Op::div_, zero, zero).is_none());
  EXPECT_TRUE(real_range(Op::log_, RealRange::of(-1), {}).is_none());
  EXPECT_TRUE(real_range(Op::sqrt_, RealRange{-3, 4, false}, {}).nan);
  EXPECT_FALSE(real_range(Op::sqrt_, RealRange{0, 4, false}, {}).nan);
}

TEST(RealRange, OfZeroHoldsThoseOfBothItsSigns) {
  const RealRange zero = RealRange::of(0), one = RealRange::of(1), minus_one = RealRange::of(-1);
  const auto expect_both = [](const RealRange& range, double of_plus, double of_minus) {
    EXPECT_TRUE(contains(range, RealRange::of(of_plus))) << of_plus;
    EXPECT_TRUE(contains(range, RealRange::of(of_minus))) << of_minus;
  };
  expect_both(real_range(Op::div_, one, zero), kInfinity, -kInfinity);
  expect_both(real_range(Op::floordiv_, one, zero), kInfinity, -kInfinity);
  expect_both(real_range(Op::rsqrt_, zero, {}), kInfinity, -kInfinity);
  expect_both(real_range(Op::pow_, zero, minus_one), kInfinity, -kInfinity);
  expect_both(real_range(Op::pow_, {0, 2, false}, {-1, 1, false}), kInfinity, -kInfinity);
  expect_both(real_range(Op::atan2_, zero, minus_one), std::atan2(0.0, -1), std::atan2(-0.0, -1));
}

TEST(RealRange, ComparesWhatIsKnown) {
  const RealRange low{0, 1, false}, high{2, 3, false}, nan = RealRange::only_nan();
  EXPECT_TRUE(compared(Op::lt_, low, high).is_true());
  EXPECT_TRUE(compared(Op::ge_, low, high).is_false());
  EXPECT_TRUE(compared(Op::ne_, low, high).is_true());
  EXPECT_TRUE(compared(Op::eq_, nan, nan).is_false());
  EXPECT_TRUE(compared(Op::le_, nan, high).is_false());
  EXPECT_EQ(compared(Op::lt_, RealRange{0, 1, true}, high), (Range{0, 1}));
  EXPECT_EQ(compared(Op::lt_, RealRange{0, 2.5, false}, high), (Range{0, 1}));
}

}  // namespace
}  // namespace attn::masks
