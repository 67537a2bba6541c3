// The sums of attn/learned_sums.cuh.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/unit/compiler/programs/warps_on_host.h"
#define asm ATTN_ASM_ON_HOST
#include "tests/host/gpu/cuda.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "attn/learned_sums.cuh"
#pragma GCC diagnostic pop

namespace attn {
namespace {

// The sum of element 1 of two.
double exact_sum(const std::vector<float>& numbers) {
  std::vector<unsigned long long> words(2 * kernels::ExactSums::kWords);
  const kernels::ExactSums sums{words.data(), 2};
  for (const float number : numbers) sums.add(1, number);
  EXPECT_EQ(sums.sum(0), 0);
  return sums.sum(1);
}

TEST(LearnedSums, AreExactWhateverTheMagnitudes) {
  EXPECT_EQ(exact_sum({}), 0);
  EXPECT_EQ(exact_sum({1.5F, -0.25F}), 1.25);
  EXPECT_EQ(exact_sum({0x1p100F, 0x1p-100F, -0x1p100F}), 0x1p-100);
  EXPECT_EQ(exact_sum({0x1.fffffep127F, -0x1.fffffep127F, 3}), 3);
  EXPECT_EQ(exact_sum({-0x1.fffffep-105F}), -0x1.fffffep-105);
  EXPECT_EQ(exact_sum({0x1p-106F}), 0) << "counts as 0";
}

TEST(LearnedSums, AreNaNIfANumberIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(exact_sum({1, infinity, -infinity})));
  EXPECT_TRUE(std::isnan(exact_sum({std::nanf(""), -1})));
}

TEST(LearnedSums, HaveTheSameBitsInAnyOrder) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(1000);
  for (float& number : numbers) number = std::exp2(8 * normal(random)) * normal(random);
  const double sum = exact_sum(numbers);
  double expected = 0;
  for (const float number : numbers) expected += number;
  EXPECT_NEAR(sum, expected, 1e-9 * std::abs(expected));
  for (int i = 0; i < 10; ++i) {
    std::ranges::shuffle(numbers, random);
    EXPECT_EQ(exact_sum(numbers), sum);
  }
}

// Sums in parts of `heads` heads, scaled by the largest squares of rows.
struct Fixed {
  kernels::Largest largest{};
  unsigned long long word = 0;

  Fixed(float of_gradients, float of_values) {
    largest.squares[0] = __float_as_uint(of_gradients);
    largest.squares[1] = __float_as_uint(of_values);
  }
  double sum(const std::vector<float>& numbers, int bits) {
    const kernels::FixedSums sums{&largest, &word};
    for (const float number : numbers) {
      const float units = number * kernels::FixedSums::units(largest.power(), bits);
      if (units - units == 0)
        kernels::FixedSums::add(&word, units);
      else
        sums.lose();
    }
    return sums.sum(0, bits);
  }
};

// |dP - delta + dlse| is below twice a product of rows plus the largest dlse.
TEST(LearnedSums, HaveRoomForGradientsThroughLse) {
  for (const float of_lse : {0x1p-20F, 0.9F, 5.0F, 0x1p35F}) {
    const int bits = 5;
    Fixed sums(1, 1);
    sums.largest.include(-of_lse);
    sums.largest.include(of_lse / 2);
    const float most = 2 + of_lse;
    const std::vector<float> numbers(1U << (bits - 1), most);
    EXPECT_NEAR(sums.sum(numbers, bits), std::ldexp(most, bits - 1), 1e-6 * most) << of_lse;
  }
  Fixed lost(1, 1);
  lost.largest.include(std::nanf(""));
  EXPECT_TRUE(std::isnan(lost.sum({1}, 3)));
}

TEST(LearnedSums, OfBoundedNumbersFitInAWord) {
  for (const float square : {0x1p-40F, 0.7F, 1.0F, 3.9F, 0x1p30F}) {
    for (const int bits : {1, 5, 12}) {
      const auto most = static_cast<float>(2 * square);  // squares of both are equal
      const std::vector<float> numbers(1U << (bits - 1), most);
      const double expected = std::ldexp(static_cast<double>(most), bits - 1);
      EXPECT_EQ(Fixed(square, square).sum(numbers, bits), expected) << square << ", " << bits;
      const float small = most * 0x1.234p-30F;
      EXPECT_NEAR(Fixed(square, square).sum({small}, bits), small, std::ldexp(expected, -58));
    }
  }
}

TEST(LearnedSums, OfBoundedNumbersAreNaNIfOneIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(Fixed(1, 1).sum({1, std::nanf("")}, 4)));
  EXPECT_TRUE(std::isnan(Fixed(1, infinity).sum({0}, 4)));
  EXPECT_EQ(Fixed(0, 0).sum({0}, 4), 0);
}

}  // namespace
}  // namespace attn
