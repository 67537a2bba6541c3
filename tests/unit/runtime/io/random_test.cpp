#include "runtime/io/random.h"

#include <gtest/gtest.h>

#include <cmath>

namespace attn::io {
namespace {

TEST(Random, ValuesNeverChange) {
  EXPECT_EQ(random_word(0, 0), 0xe220a8397b1dcdafU);  // SplitMix64's published first output
  EXPECT_EQ(random_word(0, 1), 0x6e789e6aa1b965f4U);
  const std::vector<double> values = normal_values(1, 4);
  const std::vector<double> again = normal_values(1, 4);
  EXPECT_EQ(values, again);
}

TEST(Random, ALongerDrawBeginsWithTheShorter) {
  const std::vector<double> five = normal_values(7, 5);
  std::vector<double> nine = normal_values(7, 9);
  nine.resize(5);
  EXPECT_EQ(five, nine);
}

TEST(Random, MomentsAreThoseOfANormal) {
  const std::vector<double> values = normal_values(3, 200000);
  double sum = 0, squares = 0, fourth = 0;
  for (double value : values) {
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
    fourth += value * value * value * value;
  }
  const double count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 1, 0.015);
  EXPECT_NEAR(fourth / count, 3, 0.1);
}

TEST(Random, NeighbouringSeedsAndNamesAreUnrelated) {
  const std::vector<double> a = normal_values(1, 20000);
  const std::vector<double> b = normal_values(2, 20000);
  const std::vector<double> q = normal_values(seed_of("q"), 20000);
  double ab = 0, aq = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aq += a[i] * q[i];
  }
  EXPECT_NEAR(ab / 20000, 0, 0.03);
  EXPECT_NEAR(aq / 20000, 0, 0.03);
  EXPECT_NE(seed_of("q"), seed_of("k"));
}

}  // namespace
}  // namespace attn::io
