#include "compiler/rewrite/ranged.h"

#include <gtest/gtest.h>

#include <random>

#include "compiler/reference/row_evaluator.h"
#include "tests/unit/compiler/masks/dense.h"
#include "tests/unit/compiler/masks/example.h"
#include "tests/unit/compiler/masks/random_mask.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::rewrite {
namespace {

using ir::ExprId;
using ir::Op;
using masks::testing::masks_of;
using masks::testing::of_clauses;

std::string ranged(const std::string& mask) {
  return masks_of(with_ranges(of_clauses(64, 48, "mask " + mask + ";")));
}

TEST(WithRanges, WhatHasOneValueIsAConstant) {
  EXPECT_EQ(ranged("q_idx < 64"), "true");
  EXPECT_EQ(ranged("q_idx > 63 || kv_idx < 10"), "kv_idx < 10");
  EXPECT_EQ(ranged("q_idx // 64 == kv_idx // 8"), "0 == kv_idx // 8");
  EXPECT_EQ(ranged("q_idx < 63"), "q_idx < 63");
}

TEST(WithRanges, MultiplesAreDividedWithoutADivision) {
  EXPECT_EQ(ranged("(q_idx * 8 + 3) // 8 < kv_idx"), "q_idx < kv_idx");
  EXPECT_EQ(ranged("(q_idx * 8 + kv_idx * 4 + 9) // 4 < 30"), "q_idx * 2 + kv_idx + 2 < 30");
  EXPECT_EQ(ranged("(q_idx * 8 + 3) % 8 < kv_idx"), "3 < kv_idx");
  EXPECT_EQ(ranged("(q_idx * 8 + kv_idx) // 8 < 3"), "(q_idx * 8 + kv_idx) // 8 < 3");
}

TEST(WithRanges, ARemainderBetweenTwoMultiplesIsADifference) {
  EXPECT_EQ(ranged("q_idx % 64 >= kv_idx"), "q_idx >= kv_idx");
  EXPECT_EQ(ranged("(q_idx + 64) % 64 >= kv_idx"), "q_idx + 64 - 64 >= kv_idx");
  EXPECT_EQ(ranged("q_idx % 63 >= kv_idx"), "q_idx % 63 >= kv_idx");
}

// Neither the multiple of 100 below the least 32-bit number, nor the factor of an index that is 0,
// has 32 bits.
TEST(WithRanges, WhatDoesNotFitIsNoConstant) {
  EXPECT_EQ(ranged("(kv_idx - 2147483647) % 100 != 60"), "(kv_idx - 2147483647) % 100 != 60");
  EXPECT_EQ(ranged("(kv_idx - 2147483600) % 100 != 40"), "kv_idx - 2147483600 - -2147483600 != 40");
  const ir::Attention one_row =
      of_clauses(1, 64, "mask (q_idx * 2000000000 * 4 + kv_idx) // 2 < 9;");
  EXPECT_TRUE(ir::verify(with_ranges(one_row)).ok());
}

TEST(WithRanges, RemaindersOfMagnitudes) {
  EXPECT_EQ(ranged("abs(q_idx * 4 - kv_idx * 8) % 4 == 0"), "true");
  EXPECT_EQ(ranged("abs(q_idx * 4 - kv_idx * 8 + 1) % 2 == 1"), "true");
  EXPECT_NE(ranged("abs(q_idx * 4 - kv_idx * 8 + 1) % 4 == 1"), "true");  // 3 where it is negative
}

TEST(WithRanges, MagnitudesAndExtremaOfKnownOrder) {
  EXPECT_EQ(ranged("abs(q_idx) >= kv_idx"), "q_idx >= kv_idx");
  EXPECT_EQ(ranged("abs(kv_idx - 60) < q_idx"), "-(kv_idx - 60) < q_idx");
  EXPECT_EQ(ranged("min(q_idx, 63) >= max(kv_idx, 0)"), "q_idx >= kv_idx");
  EXPECT_EQ(ranged("min(q_idx, 62) >= kv_idx"), "min(q_idx, 62) >= kv_idx");
}

TEST(WithRanges, OpenDimensionsHaveNoEnds) {
  ir::Attention attention = of_clauses(64, 48, "mask q_idx < 64;");
  attention = masks::testing::of_spec(
      "attention a { dims B = 1, Hq = 1, Hkv = 1, D = 8; mask q_idx < 64; }");
  EXPECT_EQ(masks_of(with_ranges(attention)), "q_idx < 64");
}

std::string fewer(const std::string& mask) {
  return masks_of(without_redundant(of_clauses(64, 64, "mask " + mask + ";"), {}));
}

TEST(WithoutRedundant, WhatTheOthersImplyGoes) {
  EXPECT_EQ(fewer("q_idx - kv_idx < 8 && q_idx >= kv_idx && q_idx // 64 == kv_idx // 64"),
            "q_idx - kv_idx < 8 && q_idx >= kv_idx");
  EXPECT_EQ(fewer("q_idx >= kv_idx && q_idx // 8 >= kv_idx // 8"), "q_idx >= kv_idx");
  EXPECT_EQ(fewer("q_idx >= kv_idx && q_idx // 8 == kv_idx // 8"),
            "q_idx >= kv_idx && q_idx // 8 == kv_idx // 8");
}

TEST(WithoutRedundant, SidesThatSayNothingGo) {
  EXPECT_EQ(fewer("q_idx >= kv_idx || q_idx > kv_idx + 5"), "q_idx >= kv_idx");
  EXPECT_EQ(fewer("kv_idx < 32 && (q_idx < 4 || kv_idx > 40)"), "kv_idx < 32 && q_idx < 4");
}

TEST(WithoutRedundant, WhatTensorsSayStays) {
  const ir::Attention attention =
      of_clauses(64, 64, "tensor doc: i32[Sq]; mask q_idx >= kv_idx && doc[q_idx] == doc[kv_idx];");
  EXPECT_EQ(without_redundant(attention, {}).masks.size(), 2U);
}

// Neither changes which scores are visible.
TEST(Ranged, RandomMasksShowTheSame) {
  std::mt19937_64 random(5);
  const auto size = [&] { return static_cast<std::int64_t>(random() % 12 + 1); };
  int smaller = 0, fewer = 0;
  for (int i = 0; i < 2000; ++i) {
    ir::Attention attention = masks::testing::example(size(), size());
    masks::testing::RandomMask mask(attention, random);
    attention.masks = {mask.boolean(2), mask.boolean(1)};
    const std::vector<bool> wanted = masks::testing::shown(attention);
    const ir::Attention by_range = with_ranges(attention);
    ASSERT_TRUE(ir::verify(by_range).ok());
    ASSERT_EQ(masks::testing::shown(by_range), wanted) << masks_of(attention);
    const ir::Attention least = without_redundant(by_range, {});
    ASSERT_TRUE(ir::verify(least).ok());
    ASSERT_EQ(masks::testing::shown(least), wanted) << masks_of(by_range);
    smaller += ir::to_text(by_range).size() < ir::to_text(attention).size() ? 1 : 0;
    fewer += ir::to_text(least).size() < ir::to_text(by_range).size() ? 1 : 0;
  }
  EXPECT_GT(smaller, 500);
  EXPECT_GT(fewer, 20);
}

// What the masks show, row by row, in integers that wrap around.
std::vector<bool> shown_by_reference(const ir::Attention& attention) {
  const reference::Bindings nothing;
  reference::RowEvaluator evaluator(attention, nothing, attention.masks);
  const std::vector<double> scores(static_cast<std::size_t>(attention.dims[ir::Dim::Skv]));
  std::vector<bool> shown;
  for (std::int64_t row = 0; row < attention.dims[ir::Dim::Sq]; ++row) {
    evaluator.run({0, 0, row}, scores);
    for (std::size_t column = 0; column < scores.size(); ++column) {
      shown.push_back(std::ranges::all_of(
          attention.masks, [&](ExprId mask) { return evaluator.cells(mask)[column].value != 0; }));
    }
  }
  return shown;
}

// The ends of 32 bits, and numbers near them.
TEST(Ranged, RandomMasksOfLargeNumbersShowTheSame) {
  std::mt19937_64 random(7);
  const auto size = [&] { return static_cast<std::int64_t>(random() % 4 + 1); };
  for (int i = 0; i < 2000; ++i) {
    ir::Attention attention = masks::testing::example(size(), size());
    std::vector<ExprId> integers;
    for (const std::int64_t number :
         {INT32_MIN, INT32_MIN + 1, INT32_MIN / 2, INT32_MAX / 2, INT32_MAX - 1, INT32_MAX}) {
      const ExprId large = attention.dag.integer(number);
      integers.push_back(large);
      for (const Op op : {Op::add_, Op::mul_, Op::floordiv_, Op::mod_})
        integers.push_back(attention.dag.add(op, {attention.dag.leaf(Op::row_), large}));
      integers.push_back(attention.dag.add(Op::neg_, {large}));
    }
    masks::testing::RandomMask mask(attention, random, integers, {attention.dag.boolean(true)});
    attention.masks = {mask.boolean(2), mask.boolean(1)};
    const std::vector<bool> wanted = shown_by_reference(attention);
    const ir::Attention by_range = with_ranges(attention);
    ASSERT_TRUE(ir::verify(by_range).ok()) << masks_of(attention);
    ASSERT_EQ(shown_by_reference(by_range), wanted) << masks_of(attention);
  }
}

}  // namespace
}  // namespace attn::rewrite
