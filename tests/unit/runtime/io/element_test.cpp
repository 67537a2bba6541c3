#include "runtime/io/element.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace attn::io {
namespace {

double round_trip(DType type, double value) {
  std::array<std::byte, 8> bytes{};
  store(type, value, bytes.data());
  return load(type, bytes.data());
}

TEST(Element, FloatsRoundToNearestEven) {
  EXPECT_EQ(round_trip(DType::bf16, 1 + 0x1p-8), 1.0);  // a tie goes to the even neighbour
  EXPECT_EQ(round_trip(DType::bf16, 1 + 3 * 0x1p-8), 1 + 0x1p-6);
  EXPECT_EQ(round_trip(DType::f16, 1 + 0x1p-11), 1.0);
  EXPECT_EQ(round_trip(DType::f16, 1 + 0x1p-10), 1 + 0x1p-10);
  EXPECT_EQ(round_trip(DType::f16, 65520), std::numeric_limits<double>::infinity());
  EXPECT_EQ(round_trip(DType::f32, 1 + 0x1p-24), 1.0);
  EXPECT_EQ(round_trip(DType::f64, 0.1), 0.1);
}

TEST(Element, InfinitiesAndNanSurvive) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (DType type : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    EXPECT_EQ(round_trip(type, -infinity), -infinity);
    EXPECT_TRUE(std::isnan(round_trip(type, std::nan(""))));
  }
}

TEST(Element, EightBitFloatsRoundAndSaturate) {
  EXPECT_TRUE(fits(DType::e4m3, 0.3) && fits(DType::e5m2, 1e9));
  EXPECT_EQ(round_trip(DType::e4m3, -1.8125), -1.75);
  EXPECT_EQ(round_trip(DType::e4m3, 1e9), 448);
  EXPECT_EQ(round_trip(DType::e5m2, 0.3), 0.3125);
}

TEST(Element, ScalesOfBlocksArePowersOfTwo) {
  EXPECT_EQ(round_trip(DType::e8m0, 0x1p-127), 0x1p-127);
  EXPECT_EQ(round_trip(DType::e8m0, 0.4), 0.5);
  EXPECT_TRUE(std::isnan(round_trip(DType::e8m0, 0)));
}

TEST(Element, IntegersFitTheirRangeOnly) {
  EXPECT_TRUE(fits(DType::i8, -128));
  EXPECT_FALSE(fits(DType::i8, 128));
  EXPECT_TRUE(fits(DType::u8, 255));
  EXPECT_FALSE(fits(DType::u8, -1));
  EXPECT_TRUE(fits(DType::i32, 2147483647));
  EXPECT_FALSE(fits(DType::i32, 2147483648.0));
  EXPECT_TRUE(fits(DType::i64, 0x1p53));
  EXPECT_FALSE(fits(DType::i64, 0x1p54));
  EXPECT_FALSE(fits(DType::i32, 0.5));
  EXPECT_FALSE(fits(DType::i32, std::nan("")));
  EXPECT_TRUE(fits(DType::boolean, 1));
  EXPECT_FALSE(fits(DType::boolean, 2));
}

TEST(Element, IntegersRoundTrip) {
  EXPECT_EQ(round_trip(DType::i8, -128), -128);
  EXPECT_EQ(round_trip(DType::u8, 200), 200);
  EXPECT_EQ(round_trip(DType::i32, -2147483648.0), -2147483648.0);
  EXPECT_EQ(round_trip(DType::i64, 0x1p53), 0x1p53);
  EXPECT_EQ(round_trip(DType::boolean, 1), 1);
}

TEST(Element, AnyNonZeroByteIsTrue) {
  const std::byte byte{0x40};
  EXPECT_EQ(load(DType::boolean, &byte), 1);
}

}  // namespace
}  // namespace attn::io
