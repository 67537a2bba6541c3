#include "runtime/base/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>

namespace attn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A 16-bit format described by its field widths, and the conversions to check.
struct Format {
  const char* name;
  int exponent_bits;
  int fraction_bits;
  std::uint16_t (*to_bits)(double);
  double (*from_bits)(std::uint16_t);

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int exponent_mask() const { return (1 << exponent_bits) - 1; }
  int fraction_mask() const { return (1 << fraction_bits) - 1; }
  int exponent(unsigned bits) const {
    return static_cast<int>(bits >> fraction_bits) & exponent_mask();
  }
  int fraction(unsigned bits) const { return static_cast<int>(bits) & fraction_mask(); }
  bool is_nan(unsigned bits) const {
    return exponent(bits) == exponent_mask() && fraction(bits) != 0;
  }
  unsigned infinity_bits() const { return static_cast<unsigned>(exponent_mask()) << fraction_bits; }
};

// The double that a bit pattern represents, computed from its fields.
double widened(const Format& format, unsigned bits) {
  std::uint64_t sign = (bits >> 15) & 1;
  std::int64_t exponent = format.exponent(bits);
  std::uint64_t fraction = static_cast<std::uint64_t>(format.fraction(bits));
  if (exponent == format.exponent_mask()) {
    exponent = 0x7FF;
  } else if (exponent != 0) {
    exponent += 1023 - format.bias();
  } else if (fraction != 0) {
    exponent = 1 + 1023 - format.bias();
    while ((fraction >> format.fraction_bits) == 0) {
      fraction <<= 1;
      --exponent;
    }
    fraction &= static_cast<std::uint64_t>(format.fraction_mask());
  }
  return std::bit_cast<double>(sign << 63 | static_cast<std::uint64_t>(exponent) << 52 |
                               fraction << (52 - format.fraction_bits));
}

class SixteenBits : public ::testing::TestWithParam<Format> {};

INSTANTIATE_TEST_SUITE_P(Formats, SixteenBits,
                         ::testing::Values(Format{"f16", 5, 10, to_f16_bits, from_f16_bits},
                                           Format{"bf16", 8, 7, to_bf16_bits, from_bf16_bits}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(SixteenBits, EveryPatternReadsAsItsBitsSay) {
  const Format& format = GetParam();
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const double value = format.from_bits(static_cast<std::uint16_t>(bits));
    if (format.is_nan(bits)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint64_t>(value),
                std::bit_cast<std::uint64_t>(widened(format, bits)))
          << bits;
    }
  }
}

TEST_P(SixteenBits, EveryPatternSurvivesTheWayBack) {
  const Format& format = GetParam();
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const std::uint16_t back = format.to_bits(widened(format, bits));
    if (format.is_nan(bits)) {
      ASSERT_TRUE(format.is_nan(back)) << bits;
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

// Between two neighbours: nearer to the lower, nearer to the upper, and the tie, which rounds to
// even. Every other double lies between two such points and rounding is monotone.
TEST_P(SixteenBits, RoundsToNearestEvenBetweenAllNeighbours) {
  const Format& format = GetParam();
  for (unsigned low = 0; low + 1 < format.infinity_bits(); ++low) {
    const double middle = (widened(format, low) + widened(format, low + 1)) / 2;  // exact
    const unsigned even = low % 2 == 0 ? low : low + 1;
    ASSERT_EQ(format.to_bits(middle), even);
    ASSERT_EQ(format.to_bits(-middle), even | 0x8000);
    ASSERT_EQ(format.to_bits(std::nextafter(middle, 0.0)), low);
    ASSERT_EQ(format.to_bits(std::nextafter(middle, kInfinity)), low + 1);
  }
}

TEST_P(SixteenBits, OverflowsHalfAStepAboveTheLargest) {
  const Format& format = GetParam();
  const unsigned infinity = format.infinity_bits();
  const double largest = widened(format, infinity - 1);
  const double limit = largest + (largest - widened(format, infinity - 2)) / 2;
  EXPECT_EQ(format.to_bits(std::nextafter(limit, 0.0)), infinity - 1);
  EXPECT_EQ(format.to_bits(limit), infinity);
  EXPECT_EQ(format.to_bits(-limit), infinity | 0x8000);
  EXPECT_EQ(format.to_bits(std::numeric_limits<double>::max()), infinity);
  EXPECT_EQ(format.to_bits(kInfinity), infinity);
  EXPECT_EQ(format.to_bits(-kInfinity), infinity | 0x8000);
}

TEST_P(SixteenBits, UnderflowsToASignedZero) {
  const Format& format = GetParam();
  const double half = widened(format, 1) / 2;
  EXPECT_EQ(format.to_bits(half), 0);
  EXPECT_EQ(format.to_bits(-half), 0x8000);
  EXPECT_EQ(format.to_bits(std::nextafter(half, 1.0)), 1);
  EXPECT_EQ(format.to_bits(std::numeric_limits<double>::denorm_min()), 0);
}

TEST_P(SixteenBits, RoundToAgreesWithStoringAndReading) {
  const Format& format = GetParam();
  const DType type = *parse_dtype(format.name);
  for (double value = 0x1p-140; value < 0x1p130; value *= 1.0376) {
    EXPECT_EQ(round_to(type, value), format.from_bits(format.to_bits(value))) << value;
    EXPECT_EQ(round_to(type, -value), format.from_bits(format.to_bits(-value))) << value;
  }
  EXPECT_TRUE(std::isnan(round_to(type, kNan)));
}

TEST(DType, RoundToF32DropsTheExtraBits) {
  EXPECT_EQ(round_to(DType::f32, 1.0 + 0x1p-24), 1.0);
  EXPECT_EQ(round_to(DType::f32, 1.0 + 3 * 0x1p-24), 1.0 + 0x1p-22);
  EXPECT_EQ(round_to(DType::f64, 1.0 + 0x1p-52), 1.0 + 0x1p-52);
  EXPECT_EQ(round_to(DType::i32, 7.0), 7.0);
}

// Sign, exponent and fraction of the OCP specification's tables, independent of the code.
double fp8_value(DType type, int bits) {
  const bool wide = type == DType::e5m2;
  const int fraction_bits = wide ? 2 : 3, bias = wide ? 15 : 7;
  const int exponent = (bits & 0x7F) >> fraction_bits;
  const double fraction = (bits & ((1 << fraction_bits) - 1)) * std::pow(2.0, -fraction_bits);
  const double magnitude = exponent == 0 ? std::pow(2.0, 1 - bias) * fraction
                                         : std::pow(2.0, exponent - bias) * (1 + fraction);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(Fp8, EveryFiniteByteIsItsValue) {
  for (const DType type : {DType::e4m3, DType::e5m2}) {
    const int finite = type == DType::e4m3 ? 0x7F : 0x7C;
    for (int sign : {0, 0x80}) {
      for (int bits = 0; bits < finite; ++bits) {
        const auto byte = static_cast<std::uint8_t>(sign | bits);
        EXPECT_EQ(from_fp8_bits(type, byte), fp8_value(type, byte)) << int{byte};
        EXPECT_EQ(to_fp8_bits(type, fp8_value(type, byte)), byte);
      }
    }
  }
}

TEST(Fp8, SpecialBytes) {
  EXPECT_TRUE(std::isnan(from_fp8_bits(DType::e4m3, 0x7F)));
  EXPECT_TRUE(std::isnan(from_fp8_bits(DType::e4m3, 0xFF)));
  EXPECT_EQ(from_fp8_bits(DType::e4m3, 0x7E), 448);
  EXPECT_EQ(from_fp8_bits(DType::e5m2, 0xFC), -std::numeric_limits<double>::infinity());
  for (int bits : {0x7D, 0x7E, 0x7F}) {
    EXPECT_TRUE(std::isnan(from_fp8_bits(DType::e5m2, static_cast<std::uint8_t>(bits))));
  }
  for (const DType type : {DType::e4m3, DType::e5m2}) {
    EXPECT_TRUE(std::isnan(from_fp8_bits(type, to_fp8_bits(type, std::nan("")))));
    EXPECT_TRUE(std::isnan(round_to(type, std::nan(""))));
    EXPECT_TRUE(std::signbit(from_fp8_bits(type, to_fp8_bits(type, -0.0))));
  }
}

TEST(Fp8, RoundsToTheNearestAndTiesToEven) {
  for (const DType type : {DType::e4m3, DType::e5m2}) {
    const int last = type == DType::e4m3 ? 0x7E : 0x7B;
    for (int bits = 0; bits < last; ++bits) {
      const double low = fp8_value(type, bits), high = fp8_value(type, bits + 1);
      const double middle = (low + high) / 2, even = bits % 2 == 0 ? low : high;
      EXPECT_EQ(round_to(type, middle), even) << bits;
      EXPECT_EQ(round_to(type, -middle), -even) << bits;
      EXPECT_EQ(round_to(type, std::nextafter(middle, 0)), low) << bits;
      EXPECT_EQ(round_to(type, std::nextafter(middle, 1e9)), high) << bits;
    }
  }
}

TEST(Fp8, Saturates) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(round_to(DType::e4m3, 449), 448);
  EXPECT_EQ(round_to(DType::e4m3, 1e30), 448);
  EXPECT_EQ(round_to(DType::e4m3, -infinity), -448);
  EXPECT_EQ(round_to(DType::e5m2, infinity), 57344);
  EXPECT_EQ(to_fp8_bits(DType::e5m2, -infinity), 0xFB);
  EXPECT_EQ(max_finite(DType::e4m3), 448);
  EXPECT_EQ(max_finite(DType::e5m2), 57344);
}

TEST(E8m0, EveryByteIsAPowerOfTwoOrNan) {
  for (int bits = 0; bits < 0xFF; ++bits) {
    const auto byte = static_cast<std::uint8_t>(bits);
    EXPECT_EQ(from_e8m0_bits(byte), std::ldexp(1.0, bits - 127));
    EXPECT_EQ(to_e8m0_bits(from_e8m0_bits(byte)), byte);
    EXPECT_TRUE(is_e8m0(from_e8m0_bits(byte)));
  }
  EXPECT_TRUE(std::isnan(from_e8m0_bits(0xFF)) && is_e8m0(std::nan("")));
}

TEST(E8m0, RoundsSaturatesAndHasNoZeroAndNoSign) {
  EXPECT_EQ(round_to(DType::e8m0, 1.49), 1);
  EXPECT_EQ(round_to(DType::e8m0, 1.5), 2);
  EXPECT_EQ(round_to(DType::e8m0, 1e-60), 0x1p-127);
  EXPECT_EQ(round_to(DType::e8m0, std::numeric_limits<double>::infinity()), 0x1p127);
  for (const double value : {0.0, -1.0, std::nan("")}) {
    EXPECT_EQ(to_e8m0_bits(value), 0xFF);
    EXPECT_TRUE(std::isnan(round_to(DType::e8m0, value)));
  }
  EXPECT_FALSE(is_e8m0(3) || is_e8m0(0) || is_e8m0(-2) || is_e8m0(0x1p128));
}

TEST(DType, EveryNameReadsBack) {
  const DType all[] = {
#define ATTN_DTYPE(name, bytes, is_float) DType::name,
#include "runtime/base/dtype.def"
#undef ATTN_DTYPE
  };
  for (const DType type : all) EXPECT_EQ(parse_dtype(to_string(type)), type);
  EXPECT_EQ(to_string(DType::boolean), "bool");
  EXPECT_EQ(parse_dtype("boolean"), std::nullopt);
  EXPECT_EQ(parse_dtype("bf16 "), std::nullopt);
  EXPECT_EQ(parse_dtype(""), std::nullopt);
}

TEST(DType, SizesAndKinds) {
  EXPECT_EQ(size_of(DType::bf16), 2U);
  EXPECT_EQ(size_of(DType::i64), 8U);
  EXPECT_EQ(size_of(DType::boolean), 1U);
  EXPECT_TRUE(is_float(DType::f16));
  EXPECT_FALSE(is_float(DType::i32));
  EXPECT_TRUE(is_float(DType::e4m3) && is_fp8(DType::e4m3) && is_fp8(DType::e5m2));
  EXPECT_FALSE(is_fp8(DType::f16) || is_fp8(DType::i8));
  EXPECT_EQ(size_of(DType::e5m2), 1U);
}

}  // namespace
}  // namespace attn
