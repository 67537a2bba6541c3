#include "compiler/masks/boxes.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/compiler/masks/dense.h"
#include "tests/unit/compiler/masks/example.h"
#include "tests/unit/compiler/masks/random_mask.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::masks {
namespace {

using ir::Dim;
using ir::ExprId;
using testing::Dense;
using testing::of_clauses;

// Whether it is proven that the second mask holds wherever the first does.
bool implies(const std::string& holds, const std::string& fails, std::int64_t size = 64) {
  const ir::Attention attention =
      of_clauses(size, size, "tensor t: i32[Skv]; mask " + holds + "; mask " + fails + ";");
  EXPECT_EQ(attention.masks.size(), 2U);
  const ExprId hold[] = {attention.masks.at(0)}, fail[] = {attention.masks.at(1)};
  return never(attention, hold, fail);
}

TEST(Never, OfWhatFollows) {
  EXPECT_TRUE(implies("q_idx // 8 > kv_idx // 8", "q_idx > kv_idx"));
  EXPECT_TRUE(implies("abs(q_idx - kv_idx) < 5", "q_idx - kv_idx < 5"));
  EXPECT_FALSE(implies("q_idx - kv_idx < 5", "abs(q_idx - kv_idx) < 5"));
  EXPECT_FALSE(implies("t[kv_idx] == 3", "q_idx >= kv_idx"));
  EXPECT_FALSE(implies("q_idx >= kv_idx", "t[kv_idx] == 3"));
}

TEST(Never, GivesUpWhereThereIsTooMuchToLookAt) {
  const char* parity = "(q_idx + kv_idx) % 2 == 0";
  const char* same = "(q_idx + kv_idx) % 4 != 1";
  EXPECT_TRUE(implies(parity, same, 64));
  EXPECT_FALSE(implies(parity, same, 4096));
}

TEST(Boxes, AreLookedAtAsLongAsTheEffortLasts) {
  const ir::Attention attention = of_clauses(64, 64, "mask q_idx // 8 == kv_idx // 8;");
  const Distance right = [](const Box& box) { return box.column.high - box.row.low; };
  Effort enough(100'000), little(100), none(std::int64_t{0});
  EXPECT_EQ(furthest(attention, right, enough), 7);
  EXPECT_FALSE(enough.is_spent());
  EXPECT_GT(furthest(attention, right, little),
            7);  // an upper bound
  EXPECT_TRUE(little.is_spent());
  EXPECT_EQ(furthest(attention, right, none), 63);
  const ExprId hold[] = {attention.masks.at(0)};
  EXPECT_FALSE(never(attention, hold, {}, none));
  EXPECT_EQ(bounds_of(attention, none), (Bounds{{0, 63}, {0, 63}}));
}

TEST(Furthest, IsThatOfTheFurthestScore) {
  const Distance right = [](const Box& box) { return box.column.high - box.row.low; };
  EXPECT_EQ(furthest(of_clauses(64, 64, "mask q_idx // 8 == kv_idx // 8;"), right), 7);
  EXPECT_EQ(furthest(of_clauses(64, 64, "mask q_idx >= kv_idx + 3;"), right), -3);
  EXPECT_EQ(furthest(of_clauses(64, 96, ""), right), 95);
  EXPECT_EQ(furthest(of_clauses(64, 64, "mask q_idx - kv_idx > 63;"), right), std::nullopt);
}

TEST(BoundsOf, AreTheNarrowest) {
  EXPECT_EQ(bounds_of(of_clauses(64, 64, "mask q_idx >= 10 && kv_idx > q_idx && kv_idx < 40;")),
            (Bounds{{10, 38}, {11, 39}}));
  EXPECT_EQ(bounds_of(of_clauses(64, 48, "")), (Bounds{{0, 63}, {0, 47}}));
  EXPECT_EQ(bounds_of(of_clauses(64, 64, "mask q_idx + kv_idx < 0;")), std::nullopt);
}

// The bound on each side may be wider than it need be, but they do not pass each other.
TEST(BoundsOf, AreNeverEmptyHoweverSoonTheEffortEnds) {
  const ir::Attention attention =
      of_clauses(256, 320,
                 "tensor t: i32[B]; mask t[b] // max(1, h) <= h < q_idx * h; "
                 "mask all(j in 0..3: q_idx % 9 == j);");
  for (std::int64_t work = 250; work < 20'000'000; work += work / 4) {
    Effort effort(work);
    const auto bounds = bounds_of(attention, effort);
    if (!bounds) continue;
    EXPECT_LE(bounds->rows.low, bounds->rows.high) << work;
    EXPECT_LE(bounds->columns.low, bounds->columns.high) << work;
  }
}

// Searches over boxes give the same result as counting.
TEST(Boxes, OfRandomMasks) {
  std::mt19937_64 random(13);
  const auto size = [&] { return static_cast<std::int64_t>(random() % 12 + 1); };
  int nevers = 0;
  for (int i = 0; i < 2000; ++i) {
    ir::Attention attention = testing::example(size(), size());
    testing::RandomMask mask(attention, random);
    attention.masks = {mask.boolean(2)};
    const ExprId fail[] = {mask.boolean(1)};
    bool found = false;
    std::optional<Bounds> bounds;
    for (std::int64_t row = 0; row < attention.dims[Dim::Sq]; ++row) {
      for (std::int64_t column = 0; column < attention.dims[Dim::Skv]; ++column) {
        const Dense dense(attention, row, column);
        if (!dense.all(attention.masks)) continue;
        found |= !dense.all(fail);
        if (!bounds) bounds = Bounds{{row, row}, {column, column}};
        bounds->rows.high = row;
        bounds->columns.low = std::min(bounds->columns.low, column);
        bounds->columns.high = std::max(bounds->columns.high, column);
      }
    }
    ASSERT_EQ(never(attention, attention.masks, fail), !found)
        << testing::masks_of(attention) << "  and  " << ir::to_source(attention, fail[0]);
    ASSERT_EQ(bounds_of(attention), bounds) << testing::masks_of(attention);
    nevers += found ? 0 : 1;
  }
  EXPECT_GT(nevers, 200);
}

}  // namespace
}  // namespace attn::masks
