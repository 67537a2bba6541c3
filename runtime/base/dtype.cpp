#include "runtime/base/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace attn {
namespace {

struct Row {
  std::string_view name;
  std::size_t bytes;
  bool is_float;
};

constexpr Row kRows[] = {
#define ATTN_DTYPE(name, bytes, is_float) {#name, bytes, is_float},
#include "runtime/base/dtype.def"
#undef ATTN_DTYPE
};

const Row& row(DType type) { return kRows[static_cast<std::size_t>(type)]; }

constexpr int kDoubleBias = 1023, kDoubleFractionBits = 52;

// The exponent of a normal number; at most -1023 for others. (Every element is rounded: std::frexp
// and std::ldexp take a tenth of the reference's time.)
int exponent_of(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(std::abs(value));
  return static_cast<int>(bits >> kDoubleFractionBits) - kDoubleBias;
}

// 2^exponent, which must be a normal number.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + kDoubleBias)
                               << kDoubleFractionBits);
}

// Rounds a number to `fraction_bits` explicit fraction bits: half an ulp is added to the bits, less
// one where that makes a tie even, which may carry into the exponent, as it should.
double round_fraction(double value, int fraction_bits) {
  const int cut = kDoubleFractionBits - fraction_bits;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t half = (std::uint64_t{1} << (cut - 1)) - 1 + (bits >> cut & 1);
  return std::bit_cast<double>((bits + half) >> cut << cut);
}

// Rounds to a binary format with `fraction_bits` explicit fraction bits and the given smallest
// normal exponent; the result is exact in double.
double round_to_binary(double value, int fraction_bits, int min_exponent, double max_finite) {
  if (value == 0.0 || !std::isfinite(value)) return value;
  double rounded = 0;
  if (exponent_of(value) >= min_exponent) {
    rounded = round_fraction(value, fraction_bits);
  } else {
    const int ulp_exponent = min_exponent - fraction_bits;
    rounded = std::nearbyint(value * power_of_two(-ulp_exponent)) * power_of_two(ulp_exponent);
  }
  if (std::abs(rounded) > max_finite) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  return rounded;
}

double round_f16(double value) { return round_to_binary(value, 10, -14, 65504.0); }

double round_bf16(double value) { return round_to_binary(value, 7, -126, 0x1.FEp127); }

// An 8-bit float: a sign, the exponent, the fraction.
struct Fp8 {
  int fraction_bits;
  int bias;
  double max;
  std::uint8_t nan;  // without the sign; e5m2 has further ones

  int min_exponent() const { return 1 - bias; }
};

const Fp8& fp8(DType type) {
  static constexpr Fp8 kE4m3{3, 7, 448.0, 0x7F};
  static constexpr Fp8 kE5m2{2, 15, 57344.0, 0x7E};
  return type == DType::e4m3 ? kE4m3 : kE5m2;
}

double round_fp8(DType type, double value) {
  const Fp8& format = fp8(type);
  if (std::isnan(value)) return value;
  if (std::abs(value) > format.max) return std::copysign(format.max, value);
  return round_to_binary(value, format.fraction_bits, format.min_exponent(), format.max);
}

}  // namespace

std::string_view to_string(DType type) {
  return type == DType::boolean ? std::string_view("bool") : row(type).name;
}

std::optional<DType> parse_dtype(std::string_view text) {
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    const auto type = static_cast<DType>(i);
    if (to_string(type) == text) return type;
  }
  return std::nullopt;
}

std::size_t size_of(DType type) { return row(type).bytes; }

bool is_float(DType type) { return row(type).is_float; }

bool is_fp8(DType type) { return type == DType::e4m3 || type == DType::e5m2; }

double max_finite(DType type) {
  switch (type) {
    case DType::f16: return 65504.0;
    case DType::bf16: return 0x1.FEp127;
    case DType::f32: return std::numeric_limits<float>::max();
    case DType::e4m3:
    case DType::e5m2: return fp8(type).max;
    case DType::e8m0: return 0x1p127;
    default: return std::numeric_limits<double>::max();
  }
}

std::uint16_t to_bf16_bits(double value) {
  // Every rounded bf16 value is exact in float, so the top half of its bits is the answer.
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(round_bf16(value)));
  const auto top = static_cast<std::uint16_t>(bits >> 16);
  return std::isnan(value) ? static_cast<std::uint16_t>(top | 0x0040) : top;
}

double from_bf16_bits(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t to_f16_bits(double value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7E00);
  const double magnitude = std::abs(round_f16(value));
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | 0x7C00);
  if (magnitude < 0x1p-14) {
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(magnitude * 0x1p24));
  }
  const int exponent = exponent_of(magnitude);
  const auto biased = static_cast<std::uint16_t>(exponent + 15);
  const auto mantissa =
      static_cast<std::uint16_t>((magnitude * power_of_two(-exponent) - 1) * 1024);
  return static_cast<std::uint16_t>(sign | (biased << 10) | mantissa);
}

double from_f16_bits(std::uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 0x1F;
  const int mantissa = bits & 0x3FF;
  if (exponent == 0) return sign * mantissa * 0x1p-24;
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  return sign * (1024 + mantissa) * power_of_two(exponent - 25);
}

std::uint8_t to_fp8_bits(DType type, double value) {
  const Fp8& format = fp8(type);
  const int sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return static_cast<std::uint8_t>(sign | format.nan);
  // Counted in units of the smallest positive value, subnormals are their own bits, and each
  // exponent above them adds one period of fractions.
  const double magnitude = std::abs(round_fp8(type, value));
  const int above = std::max(exponent_of(magnitude) - format.min_exponent(), 0);
  const int unit = format.min_exponent() - format.fraction_bits + above;
  const auto steps = static_cast<int>(magnitude * power_of_two(-unit));
  return static_cast<std::uint8_t>(sign | (steps + (above << format.fraction_bits)));
}

double from_fp8_bits(DType type, std::uint8_t bits) {
  const Fp8& format = fp8(type);
  const double sign = (bits & 0x80) != 0 ? -1.0 : 1.0;
  const int magnitude = bits & 0x7F;
  const int fraction = magnitude & ((1 << format.fraction_bits) - 1);
  const int exponent = magnitude >> format.fraction_bits;
  if (magnitude >= format.nan - (type == DType::e5m2 ? 1 : 0)) return std::nan("");
  if (type == DType::e5m2 && exponent == 31) return sign * std::numeric_limits<double>::infinity();
  const int whole = exponent == 0 ? fraction : fraction + (1 << format.fraction_bits);
  return sign * whole * power_of_two(std::max(exponent, 1) - format.bias - format.fraction_bits);
}

std::uint8_t to_e8m0_bits(double value) {
  constexpr int kBias = 127, kNan = 0xFF;
  if (!(value > 0)) return kNan;
  if (std::isinf(value)) return kNan - 1;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // in [0.5, 1)
  const int nearest = exponent - (fraction < 0.75 ? 1 : 0);
  return static_cast<std::uint8_t>(std::clamp(nearest + kBias, 0, kNan - 1));
}

double from_e8m0_bits(std::uint8_t bits) {
  return bits == 0xFF ? std::nan("") : std::ldexp(1.0, bits - 127);
}

bool is_e8m0(double value) {
  return std::isnan(value) || from_e8m0_bits(to_e8m0_bits(value)) == value;
}

double round_to(DType type, double value) {
  switch (type) {
    case DType::f16: return round_f16(value);
    case DType::bf16: return round_bf16(value);
    case DType::f32: return static_cast<float>(value);
    case DType::e4m3:
    case DType::e5m2: return round_fp8(type, value);
    case DType::e8m0: return from_e8m0_bits(to_e8m0_bits(value));
    default: return value;
  }
}

}  // namespace attn
