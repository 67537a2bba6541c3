#include "compiler/engines/native/intervals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "tests/unit/compiler/masks/spec_example.h"

#define __device__
#include "compiler/device/attn/intervals.cuh"
#undef __device__

namespace attn::engines::native::intervals_tests {
namespace {

using kernels::Interval;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text_of(const std::string& clauses) {
  return intervals_text(masks::testing::of_clauses(64, 64, clauses));
}

TEST(IntervalsText, HasTheLargestPartsOfRowsAndOfColumns) {
  const std::string text =
      text_of("tensor d: i32[B, Sq]; param c: i32; mask d[b, q_idx] + q_idx == d[b, kv_idx] * c;");
  EXPECT_THAT(
      text, AllOf(HasSubstr("kRowValues = 1, kColumnValues = 1;"),
                  HasSubstr("i0 = kernels::equal(rows[0], columns[0]);"), HasSubstr("return i0;")));
}

TEST(IntervalsText, LooksAtOneElementWhereIndicesHaveOneValue) {
  EXPECT_THAT(text_of("tensor shown: bool[8, 8]; mask shown[q_idx // 8, kv_idx // 8];"),
              AllOf(HasSubstr("t_shown[((int)rows[0].low) * 8 + (int)columns[0].low]"),
                    HasSubstr("kernels::is_point(rows[0]) && kernels::is_point(columns[0]) ?"),
                    HasSubstr(": kernels::Interval{0, 1})")));
}

TEST(IntervalsText, WhatIsUnknownLeavesTheOtherOperand) {
  const std::string text = text_of(
      "tensor d: i32[Skv]; tensor x: f32[Skv]; mask q_idx >= kv_idx && x[kv_idx] > 0.5 * q_idx;");
  EXPECT_THAT(text, HasSubstr("kernels::both(i0, kernels::Interval{0, 1})"));
}

TEST(IntervalsText, IsEmptyWhereIntervalsDecideNothing) {
  constexpr const char* kNone =
      "  static constexpr bool kIntervals = false;\n"
      "  static constexpr int kRowValues = 0, kColumnValues = 0;\n";
  EXPECT_EQ(text_of("tensor x: f32[Skv]; mask x[kv_idx] > 0.5 * q_idx;"), kNone);
  EXPECT_EQ(text_of("tensor t: i32[Sq + Skv]; mask t[q_idx + kv_idx] == 1;"), kNone);
  const auto decide = [](const char* clauses) {
    const ir::Attention attention = masks::testing::of_clauses(64, 64, clauses);
    return intervals_decide(attention, attention.masks);
  };
  EXPECT_FALSE(decide("tensor t: i32[Sq + Skv]; mask t[q_idx + kv_idx] == 1;"));
  EXPECT_TRUE(
      decide("tensor t: i32[Sq + Skv]; mask t[q_idx + kv_idx] == 1; mask q_idx >= kv_idx;"));
}

// An end of the 32-bit integers stands for all beyond it.
TEST(IntervalsOf64Bits, AreOpenWhereTheirNearestNumbersEnd) {
  using kernels::closed, kernels::opened, kernels::kHighestInt, kernels::kLowestInt;
  const Interval inside = opened({-3, 5});
  EXPECT_EQ(inside.low, -3);
  EXPECT_EQ(inside.high, 5);
  const Interval open = opened({kLowestInt, kHighestInt}), any = kernels::any_wide();
  EXPECT_LT(open.low, 4 * kLowestInt);
  EXPECT_GT(open.high, 4 * kHighestInt);
  EXPECT_EQ(open.low, any.low);
  EXPECT_EQ(open.high, any.high);
  EXPECT_EQ(closed(open).low, kLowestInt);
  EXPECT_EQ(closed(open).high, kHighestInt);
}

// Intervals of random ends, and what functions of them give for values within.
class Intervals : public ::testing::Test {
 protected:
  int random(int most) { return std::uniform_int_distribution<int>(-most, most)(engine_); }
  Interval interval(int most) {
    const int x = random(most), y = random(most);
    return {std::min(x, y), std::max(x, y)};
  }
  long long within(Interval x) {
    return std::uniform_int_distribution<long long>(x.low, x.high)(engine_);
  }

  template <class Function, class Exact>
  void expect_holds(Function function, Exact exact, int most) {
    for (int i = 0; i < 2000; ++i) {
      const Interval x = interval(most), y = interval(i % 2 == 0 ? 3 : most);
      const Interval held = function(x, y);
      for (int j = 0; j < 20; ++j) {
        const auto value = static_cast<long long>(exact(within(x), within(y)));
        ASSERT_TRUE(held.low <= value && value <= held.high)
            << value << " is not in " << held.low << ".." << held.high;
      }
    }
  }

 private:
  std::mt19937 engine_{7};
};

long long floored(long long x, long long y) {
  return static_cast<long long>(std::floor(static_cast<double>(x) / static_cast<double>(y)));
}

TEST_F(Intervals, HoldWhatArithmeticGives) {
  using L = long long;
  expect_holds(
      kernels::sum, [](L x, L y) { return x + y; }, 100);
  expect_holds(
      kernels::difference, [](L x, L y) { return x - y; }, 100);
  expect_holds(
      kernels::product, [](L x, L y) { return x * y; }, 100);
  expect_holds([](Interval x, Interval y) { return kernels::smaller(x, y); },
               [](L x, L y) { return std::min(x, y); }, 10);
  expect_holds([](Interval x, Interval y) { return kernels::larger(x, y); },
               [](L x, L y) { return std::max(x, y); }, 10);
  expect_holds([](Interval x, Interval) { return kernels::opposite(x); }, [](L x, L) { return -x; },
               100);
  expect_holds([](Interval x, Interval) { return kernels::magnitude(x); },
               [](L x, L) { return std::abs(x); }, 5);
}

TEST_F(Intervals, HoldQuotientsAndRemainders) {
  for (const int by : {1, 2, 7, 64}) {
    const Interval divisor = kernels::point(by);
    for (const int most : {2, 20, 500}) {
      expect_holds([&](Interval x, Interval) { return kernels::quotient(x, divisor); },
                   [&](long long x, long long) { return floored(x, by); }, most);
      expect_holds([&](Interval x, Interval) { return kernels::remainder(x, divisor); },
                   [&](long long x, long long) { return x - by * floored(x, by); }, most);
    }
  }
  EXPECT_EQ(kernels::quotient({5, 5}, kernels::point(0)).low, kernels::kLowestInt);
  EXPECT_EQ(kernels::remainder({5, 5}, {1, 2}).high, kernels::kHighestInt);
}

TEST_F(Intervals, HoldWhatComparisonsAndLogicGive) {
  using L = long long;
  expect_holds(
      kernels::less, [](L x, L y) { return x < y; }, 5);
  expect_holds(
      kernels::less_equal, [](L x, L y) { return x <= y; }, 5);
  expect_holds(
      kernels::equal, [](L x, L y) { return x == y; }, 2);
  expect_holds([](Interval x, Interval y) { return kernels::inverse(kernels::less(x, y)); },
               [](L x, L y) { return x >= y; }, 5);
  expect_holds(
      [](Interval x, Interval y) {
        return kernels::both(kernels::less(x, y),
                             kernels::less(y, kernels::sum(x, kernels::point(3))));
      },
      [](L x, L y) { return x < y && y < x + 3; }, 5);
  expect_holds(
      [](Interval x, Interval y) {
        return kernels::either(kernels::less(x, y), kernels::equal(x, kernels::point(2)));
      },
      [](L x, L y) { return x < y || x == 2; }, 5);
  expect_holds([](Interval x, Interval y) { return kernels::chosen(kernels::less(x, y), x, y); },
               [](L x, L y) { return x < y ? x : y; }, 5);
}

TEST_F(Intervals, DecideWhatTheyCan) {
  EXPECT_EQ(kernels::less({1, 4}, {5, 9}).low, 1);
  EXPECT_EQ(kernels::less({5, 6}, {1, 5}).high, 0);
  EXPECT_EQ(kernels::equal({1, 4}, {5, 9}).high, 0);
  EXPECT_EQ(kernels::equal({3, 3}, {3, 3}).low, 1);
  EXPECT_EQ(kernels::remainder({9, 11}, kernels::point(8)).low, 1);
  EXPECT_EQ(kernels::sum({kernels::kHighestInt, kernels::kHighestInt}, {1, 1}).low,
            kernels::kLowestInt);
}

}  // namespace
}  // namespace attn::engines::native::intervals_tests
