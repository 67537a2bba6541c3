#include "compiler/passes/analysis/intervals.h"

#include <gtest/gtest.h>

#include <string>

#include "compiler/passes/rewrite/simplify.h"
#include "tests/unit/compiler/passes/example.h"
#include "tests/unit/compiler/sema/analyzing.h"

namespace attn::passes {
namespace {

constexpr char kSizes[] = "dims B = 2, Hq = 8, Hkv = 4, Sq = 128, Skv = 128, D = 64; ";
constexpr char kTensors[] =
    "tensor doc: i32[B, Skv] monotone; tensor ids: i32[B, Skv]; tensor n: i32[B]; "
    "tensor flag: bool[Skv]; tensor late: bool[Skv] monotone; param p: i32; ";

// One line per interval; inexact ones begin with "in".
std::string columns(const std::string& mask, const std::string& sizes = kSizes) {
  const sema::Analyzed analyzed = sema::analyze_body(sizes + kTensors + "mask " + mask + ";");
  EXPECT_TRUE(analyzed.attention.has_value()) << analyzed.text;
  if (!analyzed.attention) return "";
  const VisibleColumns columns = visible_columns(simplify(*analyzed.attention));
  EXPECT_TRUE(ir::verify(columns.attention).ok());
  std::string text;
  for (const Interval& interval : columns.intervals) {
    text += text.empty() ? "" : "\n";
    text += (interval.exact ? "" : "in ") + to_source(columns, interval);
  }
  return text;
}

TEST(Intervals, OfBands) {
  EXPECT_EQ(columns("q_idx >= kv_idx"), "[0, q_idx + 1)");
  EXPECT_EQ(columns("q_idx <= kv_idx"), "[q_idx, 128)");
  EXPECT_EQ(columns("0 <= q_idx - kv_idx < 16"), "[max(0, q_idx - 15), q_idx + 1)");
  EXPECT_EQ(columns("abs(q_idx - kv_idx) <= 4"), "[max(0, q_idx - 4), min(128, q_idx + 5))");
  EXPECT_EQ(columns("q_idx == kv_idx"), "[q_idx, q_idx + 1)");
  EXPECT_EQ(columns("q_idx != kv_idx"), "[0, q_idx)\n[q_idx + 1, 128)");
}

TEST(Intervals, EndWhereTheColumnsEnd) {
  EXPECT_EQ(columns("kv_idx < 1000"), "[0, 128)");
  EXPECT_EQ(columns("kv_idx > 1000"), "");
  EXPECT_EQ(columns("kv_idx >= 5 && kv_idx < 5"), "");
  EXPECT_EQ(columns("kv_idx < n[b]"), "[0, min(128, n[b]))");
  EXPECT_EQ(columns("kv_idx >= n[b]"), "[max(0, n[b]), 128)");
}

TEST(Intervals, OfMultiplesAndQuotients) {
  EXPECT_EQ(columns("3 * kv_idx <= q_idx"), "[0, q_idx // 3 + 1)");
  EXPECT_EQ(columns("2 * kv_idx < 4 * q_idx - 5"), "[0, min(128, q_idx * 2 - 2))");
  EXPECT_EQ(columns("2 * kv_idx == q_idx"), "[(q_idx + 1) // 2, q_idx // 2 + 1)");
  EXPECT_EQ(columns("q_idx // 16 == kv_idx // 16"), "[q_idx // 16 * 16, q_idx // 16 * 16 + 16)");
  EXPECT_EQ(columns("(kv_idx + 3) // 8 <= b"), "[0, b * 8 + 5)");
  EXPECT_EQ(columns("abs(q_idx // 8 - kv_idx // 8) <= 1"),
            "[max(0, q_idx // 8 * 8 - 8), min(128, q_idx // 8 * 8 + 16))");
  EXPECT_EQ(columns("kv_idx // (b + 1) < h"), "[0, h * (b + 1))");
}

TEST(Intervals, OfWhatIsChosen) {
  EXPECT_EQ(columns("min(kv_idx, q_idx) >= 4"), "[4, 128) where q_idx >= 4");
  EXPECT_EQ(columns("max(kv_idx, q_idx) < 4"), "[0, 4) where q_idx < 4");
  EXPECT_EQ(columns("where(kv_idx < 64, kv_idx, kv_idx - 64) <= q_idx"),
            "[0, min(64, q_idx + 1))\n[64, min(128, q_idx + 65))");
  EXPECT_EQ(columns("where(b == 0, q_idx >= kv_idx, kv_idx < 7)"),
            "[0, q_idx + 1) where b == 0\n[0, 7) where b != 0");
  EXPECT_EQ(columns("where(kv_idx < 64, 1, 0) == where(q_idx < 64, 1, 0)"),
            "[0, 64) where q_idx < 64\n[64, 128) where q_idx >= 64");
}

TEST(Intervals, OfTooMuchWorkAreWide) {
  const auto found = [](const std::string& mask) {
    const sema::Analyzed analyzed =
        sema::analyze_body("dims B = 1, Hq = 4, Sq = 65536, D = 64; mask " + mask + ";");
    EXPECT_TRUE(analyzed.attention) << analyzed.text;
    return visible_columns(simplify(*analyzed.attention));
  };
  const VisibleColumns wide = found("any(n in 2..2000: kv_idx // n == q_idx // n)");
  EXPECT_TRUE(wide.stopped);
  EXPECT_EQ(wide.exactness, Exactness::bound);
  EXPECT_FALSE(found("kv_idx // 64 == q_idx // 64").stopped);
}

TEST(Intervals, OfEither) {
  EXPECT_EQ(columns("kv_idx < 32 || q_idx >= kv_idx"), "[0, max(32, q_idx + 1))");
  EXPECT_EQ(columns("kv_idx < 4 || 0 <= q_idx - kv_idx < 16"),
            "[0, 4)\n[max(0, q_idx - 15), q_idx + 1)");
  EXPECT_EQ(columns("!(kv_idx < 4 || kv_idx > q_idx)"), "[4, q_idx + 1)");
  EXPECT_EQ(columns("kv_idx < 4 || true"), "[0, 128)");
}

TEST(Intervals, OfConditionsThatDoNotDependOnTheColumn) {
  EXPECT_EQ(columns("b == 1 && q_idx >= kv_idx"), "[0, q_idx + 1) where b == 1");
  EXPECT_EQ(columns("flag[q_idx]"), "[0, 128) where flag[q_idx]");
  EXPECT_EQ(columns("q_idx < 1000"), "[0, 128)");
  EXPECT_EQ(columns("kv_idx - q_idx < kv_idx - 4"), "[0, 128) where q_idx > 4");
}

TEST(Intervals, SearchedWhereAColumnOnlyRises) {
  EXPECT_EQ(columns("doc[b, q_idx] == doc[b, kv_idx]"),
            "[first(doc[b, kv_idx] >= doc[b, q_idx]), first(doc[b, kv_idx] > doc[b, q_idx]))");
  EXPECT_EQ(columns("doc[b, kv_idx // 2] < 5 && q_idx >= kv_idx"),
            "[0, min(q_idx + 1, first(doc[b, kv_idx // 2] >= 5)))");
  EXPECT_EQ(columns("doc[b, 127 - kv_idx] > p"), "[0, first(doc[b, 127 - kv_idx] <= p))");
  EXPECT_EQ(columns("late[kv_idx] && kv_idx > 3"), "[max(4, first(late[kv_idx])), 128)");
  EXPECT_EQ(columns("!late[kv_idx]"), "[0, first(late[kv_idx]))");
  EXPECT_EQ(columns("kv_idx + kv_idx // 8 <= q_idx"), "[0, first(kv_idx + kv_idx // 8 > q_idx))");
}

TEST(Intervals, WhatIsNotKnownMayBeAnything) {
  EXPECT_EQ(columns("ids[b, q_idx] == ids[b, kv_idx]"), "in [0, 128)");
  EXPECT_EQ(columns("flag[kv_idx]"), "in [0, 128)");
  EXPECT_EQ(columns("doc[kv_idx % B, kv_idx] > 0"), "in [0, 128)");
  EXPECT_EQ(columns("(q_idx - kv_idx) % 2 == 0 && q_idx >= kv_idx"), "in [0, q_idx + 1)");
  EXPECT_EQ(columns("flag[kv_idx] || abs(q_idx - kv_idx) <= 4"),
            "in [0, 128)\n[max(0, q_idx - 4), min(128, q_idx + 5))");
  EXPECT_EQ(columns("kv_idx * 1.0 <= q_idx / 3"), "in [0, 128)");
}

// Where several parts depend on the column, each is bounded by the range of the others.
TEST(Intervals, PartsAreBoundedByOthers) {
  EXPECT_EQ(columns("kv_idx - kv_idx % 2 >= q_idx"), "in [q_idx, 128)");
  EXPECT_EQ(columns("kv_idx + kv_idx % 2 < 20"), "in [0, 20)");
}

TEST(Intervals, OfRemaindersPeriodByPeriod) {
  EXPECT_EQ(columns("kv_idx // 64 == b && kv_idx % 64 < 9"), "[b * 64, b * 64 + 9)");
  EXPECT_EQ(columns("q_idx // 32 == kv_idx // 32 && q_idx % 32 >= kv_idx % 32"),
            "[q_idx // 32 * 32, q_idx + 1)");
  EXPECT_EQ(columns("kv_idx % 50 >= 40"), "[40, 50)\n[90, 100)");
  EXPECT_EQ(columns("0 <= q_idx - kv_idx < 4 && (q_idx - kv_idx) % 3 == 0"),
            "[q_idx, q_idx + 1)\n[max(0, q_idx - 3), q_idx - 2)");
  EXPECT_EQ(columns("abs(q_idx // 8 - kv_idx // 8) <= 1 && kv_idx % 8 == 2"),
            "[max(0, q_idx // 8 * 8 - 6), q_idx // 8 * 8 - 5)\n"
            "[q_idx // 8 * 8 + 2, q_idx // 8 * 8 + 3)\n"
            "[q_idx // 8 * 8 + 10, min(128, q_idx // 8 * 8 + 11))");
  EXPECT_EQ(columns("kv_idx // 8 % 8 == 1 && kv_idx % 8 < 2"), "[8, 10)\n[72, 74)");
}

TEST(Intervals, OfTooManyPeriodsAreNotKnown) {
  EXPECT_EQ(columns("kv_idx % 3 == 0"), "in [0, 128)");
  EXPECT_EQ(columns("kv_idx % 64 < p && doc[b, kv_idx % 64] > 1"),
            "in [0, min(64, p))\nin [64, min(p, 64) + 64)");
}

TEST(Intervals, NothingWraps) {
  EXPECT_EQ(columns("kv_idx <= p"), "[0, min(p, 127) + 1)");
  EXPECT_EQ(columns("q_idx - kv_idx <= p"), "[max(0, q_idx - max(p, -128)), 128)");
  EXPECT_EQ(columns("kv_idx + p >= 0"), "in [0, 128)");
  EXPECT_EQ(columns("kv_idx * 1000000000 >= q_idx"), "in [0, 128)");
  EXPECT_EQ(columns("kv_idx >= p + n[b]"), "[max(0, p + n[b]), 128)");
}

TEST(Intervals, OfOpenDimensions) {
  const std::string open = "dims B = 2, Hq = 8, Hkv = 4, D = 64; ";
  EXPECT_EQ(columns("q_idx >= kv_idx", open), "[0, min(Skv, q_idx + 1))");
  EXPECT_EQ(columns("abs(q_idx - kv_idx) < 16", open),
            "[max(0, q_idx - 15), min(Skv, min(q_idx, 2147483631) + 16))");
  EXPECT_EQ(columns("q_idx >= kv_idx", open + "align bottom_right; "), "[0, Skv + q_raw - Sq + 1)");
  EXPECT_EQ(columns("kv_idx >= Skv - 4", open), "[max(0, Skv - 4), Skv)");
}

TEST(Intervals, LengthsLieWithinTheSizes) {
  const std::string lengths = std::string(kSizes) + "lengths kv; align bottom_right; ";
  EXPECT_EQ(columns("q_idx >= kv_idx", lengths), "[0, q_raw + lengths_kv[b] - 127)");
}

TEST(Intervals, TooManyBecomeOneThatContainsThem) {
  std::string mask = "kv_idx == 3";
  for (int i = 0; i < 64; ++i) mask += " || kv_idx == ids[b, " + std::to_string(i) + "]";
  EXPECT_EQ(columns(mask), "in [0, 128)");
}

TEST(Intervals, OfSharedPartsEndInTime) {
  ir::Attention attention = testing::example(16, 16);
  ir::Dag& dag = attention.dag;
  ir::ExprId smallest = dag.leaf(ir::Op::column_);
  for (int i = 0; i < 40; ++i) {
    const ir::ExprId other = dag.add(ir::Op::sub_, {dag.leaf(ir::Op::row_), smallest});
    smallest = dag.add(ir::Op::min_, {smallest, other});
  }
  attention.masks = {dag.add(ir::Op::lt_, {smallest, dag.integer(7)})};
  EXPECT_EQ(visible_columns(attention).exactness, Exactness::bound);
}

TEST(Intervals, WithoutMasksAreAllColumns) {
  const sema::Analyzed analyzed = sema::analyze_body(kSizes);
  ASSERT_TRUE(analyzed.attention.has_value()) << analyzed.text;
  const VisibleColumns all = visible_columns(simplify(*analyzed.attention));
  ASSERT_EQ(all.intervals.size(), 1U);
  EXPECT_EQ(to_source(all, all.intervals[0]), "[0, 128)");
}

}  // namespace
}  // namespace attn::passes
