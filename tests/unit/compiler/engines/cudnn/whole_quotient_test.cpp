#include "compiler/engines/cudnn/whole_quotient.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/compiler/engines/example.h"

namespace attn::engines {
namespace {

using ir::ExprId;
using ir::Op;

// As the kernel computes it, with and without rounding the product separately.
float nearest(float x, float divisor) {
  const float shift = static_cast<float>(nearest_shift(divisor));
  const volatile float wholes = kWholes;
  return (x * (1 / divisor) + shift) + wholes - wholes;
}

float nearest_fused(float x, float divisor) {
  const float shift = static_cast<float>(nearest_shift(divisor));
  const volatile float wholes = kWholes;
  return std::fma(x, 1 / divisor, shift) + wholes - wholes;
}

TEST(WholeQuotient, NearestIsTheFloor) {
  for (const int c : {1, 2, 3, 5, 7, 16, 32, 48, 100, 127, 255, 1000, 4096, 65537, 1048583}) {
    int wrong = 0;
    for (int x = -(1 << 21) + 1; x < 1 << 21; ++x) {
      const int floor = x >= 0 ? x / c : -((-x + c - 1) / c);
      const auto divisor = static_cast<float>(c), real = static_cast<float>(x);
      wrong += nearest(real, divisor) != static_cast<float>(floor);
      wrong += nearest_fused(real, divisor) != static_cast<float>(floor);
    }
    EXPECT_EQ(wrong, 0) << c;
  }
}

class Example {
 public:
  ExprId row() { return dag().add(Op::to_real_, {dag().leaf(Op::row_)}); }
  ExprId real(double value) { return dag().real(value); }
  ExprId make(Op op, ExprId x, ExprId y) { return dag().add(op, {x, y}); }
  std::optional<WholeQuotient> operator()(ExprId id) const {
    return whole_quotient(attention_, id);
  }
  ir::Dag& dag() { return attention_.dag; }

 private:
  ir::Attention attention_ = testing::example();
};

TEST(WholeQuotient, IsRecognised) {
  Example of;
  const ExprId row = of.row();
  const auto by_32 = of(of.make(Op::mul_, row, of.real(1.0 / 32)));
  ASSERT_TRUE(by_32);
  EXPECT_EQ(by_32->x, row);
  EXPECT_EQ(by_32->divisor, 32);
  const ExprId shifted = of.make(Op::add_, row, of.real(0.5));
  const auto by_7 = of(of.make(Op::mul_, shifted, of.real(1.0 / 7)));
  ASSERT_TRUE(by_7);
  EXPECT_EQ(by_7->x, row);
  EXPECT_EQ(by_7->divisor, 7);
  EXPECT_TRUE(of(of.make(Op::mul_, of.make(Op::sub_, row, of.real(9)), of.real(0.25))));
}

TEST(WholeQuotient, NothingElseIs) {
  Example of;
  const ExprId row = of.row();
  EXPECT_FALSE(of(row));
  EXPECT_FALSE(of(of.make(Op::mul_, row, of.real(1.0 / 7)))) << "7 / 7 may be less than 1";
  EXPECT_FALSE(of(of.make(Op::mul_, row, of.real(0.3))));
  EXPECT_FALSE(of(of.make(Op::mul_, of.make(Op::add_, row, of.real(0.25)), of.real(0.5))));
  EXPECT_FALSE(of(of.make(Op::mul_, of.make(Op::add_, row, of.real(1 << 21)), of.real(0.5))));
  const ExprId score = of.dag().leaf(Op::score_);
  EXPECT_FALSE(of(of.make(Op::mul_, score, of.real(0.5)))) << "not whole";
  EXPECT_FALSE(of(of.make(Op::div_, row, of.real(0.5))));
}

}  // namespace
}  // namespace attn::engines
