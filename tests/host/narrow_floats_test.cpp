// Conversions of 8-bit floats by integers (compiler/device/attn/narrow_floats.cuh), for GPUs whose
// instructions have none.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "runtime/base/dtype.h"
#include "tests/unit/compiler/programs/warps_on_host.h"
#define asm ATTN_ASM_ON_HOST
#include "tests/host/gpu/cuda.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "attn/narrow_floats.cuh"
#pragma GCC diagnostic pop

namespace attn::narrow_floats_tests {
namespace {

template <class Float>
void expect_nearest(Float type, DType dtype, float x) {
  const unsigned bits = kernels::narrowed(type, x);
  if (std::isnan(x)) {
    EXPECT_TRUE(std::isnan(from_fp8_bits(dtype, static_cast<std::uint8_t>(bits)))) << x;
    return;
  }
  EXPECT_EQ(bits, to_fp8_bits(dtype, x)) << x;
}

template <class Float>
void expect_all(Float type, DType dtype) {
  std::mt19937 random(1);
  for (int i = 0; i < 300000; ++i) {
    const float x = __uint_as_float(static_cast<unsigned>(random()));
    expect_nearest(type, dtype, x);
    expect_nearest(type, dtype, std::ldexp(std::remainder(x, 4.0F), i % 40 - 22));
  }
  // Elements, halves between two of them, and what is beside these.
  for (unsigned bits = 0; bits < 0x7c; ++bits) {
    const double low = from_fp8_bits(dtype, static_cast<std::uint8_t>(bits));
    const double high = from_fp8_bits(dtype, static_cast<std::uint8_t>(bits + 1));
    for (const double x : {low, (low + high) / 2}) {
      const auto single = static_cast<float>(x);
      for (const float near :
           {single, std::nextafterf(single, 1e9F), std::nextafterf(single, -1e9F)}) {
        expect_nearest(type, dtype, near);
        expect_nearest(type, dtype, -near);
      }
    }
  }
}

TEST(NarrowFloats, AreTheNearest) {
  expect_all(kernels::E4M3{}, DType::e4m3);
  expect_all(kernels::E5M2{}, DType::e5m2);
}

TEST(NarrowFloats, AreHalvesOf256th) {
  for (unsigned bits = 0; bits < 256; ++bits) {
    const double expected = from_fp8_bits(DType::e4m3, static_cast<std::uint8_t>(bits));
    for (int place = 0; place < 2; ++place) {
      const unsigned pair = kernels::halves_of_256th(bits << 8 * place);
      const double half = from_f16_bits(static_cast<std::uint16_t>(pair >> place * 16));
      if (std::isnan(expected))
        EXPECT_TRUE(std::isnan(half)) << bits;
      else
        EXPECT_EQ(half * 256, expected) << bits;
    }
  }
}

}  // namespace
}  // namespace attn::narrow_floats_tests
