#include "runtime/ranks/intervals.h"

#include <gtest/gtest.h>

namespace attn::ranks {
namespace {

constexpr auto numbers_of = [](const std::vector<bool>& flags) {
  Intervals set;
  for (std::size_t i = 0; i < flags.size(); ++i) {
    const auto number = static_cast<std::int64_t>(i);
    if (flags[i]) append(set, {number, number + 1});
  }
  return set;
};

TEST(Intervals, AreSets) {
  constexpr unsigned kSize = 6;
  for (unsigned a = 0; a < 1U << kSize; ++a) {
    for (unsigned b = 0; b < 1U << kSize; ++b) {
      std::vector<bool> x, y, either, all, first;
      for (unsigned i = 0; i < kSize; ++i) {
        x.push_back(a >> i & 1U), y.push_back(b >> i & 1U);
        either.push_back(x[i] || y[i]), all.push_back(x[i] && y[i]), first.push_back(x[i] && !y[i]);
      }
      const Intervals of_x = numbers_of(x), of_y = numbers_of(y);
      EXPECT_EQ(both(of_x, of_y), numbers_of(either));
      EXPECT_EQ(common(of_x, of_y), numbers_of(all));
      EXPECT_EQ(rest(of_x, of_y), numbers_of(first));
      EXPECT_EQ(contains(of_x, of_y), (a & b) == b);
      EXPECT_EQ(numbers(of_x).size(), static_cast<std::size_t>(count(of_x)));
    }
  }
}

TEST(Intervals, ArePrinted) {
  EXPECT_EQ(to_text({}), "");
  EXPECT_EQ(to_text({{0, 4}, {6, 7}}), "0..4, 6..7");
  EXPECT_EQ(to_text({{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}}, 4),
            "0..1, 2..3, .. 2 more, 8..9, 10..11");
}

TEST(Blocks, EndWithASmallerOne) {
  const Blocks blocks{10, 4};
  EXPECT_EQ(blocks.count(), 3);
  EXPECT_EQ(blocks.of(2), (Interval{8, 10}));
}

}  // namespace
}  // namespace attn::ranks
