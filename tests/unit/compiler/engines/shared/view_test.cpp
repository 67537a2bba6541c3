#include "compiler/engines/shared/view.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/compiler/masks/dense.h"
#include "tests/unit/compiler/masks/example.h"
#include "tests/unit/compiler/masks/random_mask.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines {
namespace {

using ir::Dim;
using ir::Op;
using masks::testing::Dense;
using masks::testing::masks_of;
using masks::testing::of_clauses;

std::string seen(const View& view, const ir::Attention& attention) {
  const auto part = seen_through(view, attention);
  if (!part) return "classes differ";
  EXPECT_TRUE(ir::verify(*part).ok());
  EXPECT_EQ(part->dims[Dim::Sq], view.rows.count);
  EXPECT_EQ(part->dims[Dim::Skv], view.columns.count);
  return masks_of(*part);
}

TEST(View, TheWholeIsTheAttentionItself) {
  const ir::Attention attention = of_clauses(64, 48, "mask q_idx // 16 == kv_idx // 8;");
  EXPECT_EQ(whole_view(attention), (View{{.count = 64}, {.count = 48}, 1}));
  EXPECT_EQ(ir::to_text(*seen_through(whole_view(attention), attention)), ir::to_text(attention));
}

TEST(View, OfAStretchIsSimplifiedByItsRanges) {
  const ir::Attention causal = of_clauses(64, 64, "mask q_idx >= kv_idx;");
  EXPECT_EQ(seen({{.begin = 32, .count = 32}, {.count = 32}}, causal), "true");
  EXPECT_EQ(seen({{.count = 32}, {.begin = 32, .count = 32}}, causal), "false");
  EXPECT_EQ(seen({{.begin = 32, .count = 32}, {.begin = 32, .count = 32}}, causal),
            "q_idx + 32 >= kv_idx + 32");
}

TEST(View, OfChunksIsWhatIsInsideOfOne) {
  const ir::Attention attention =
      of_clauses(64, 64, "mask q_idx // 16 == kv_idx // 16 && q_idx >= kv_idx;");
  const Stretch chunk{0, 1, 16, 16};
  EXPECT_EQ(seen({chunk, chunk, 4}, attention), "q_idx >= kv_idx");
}

TEST(View, OfResiduesHasNoModulus) {
  const ir::Attention attention = of_clauses(64, 64, "mask (q_idx - kv_idx) % 4 == 0;");
  EXPECT_EQ(seen({{0, 4, 16, 1}, {0, 4, 16, 1}, 4}, attention), "true");
  EXPECT_EQ(seen({{0, 4, 16}, {1, 4, 16}, 1}, attention), "false");
}

TEST(View, ClassesThatDifferAreNotOne) {
  const Stretch chunk{0, 1, 16, 16};
  const View chunks{chunk, chunk, 4};
  EXPECT_EQ(seen(chunks, of_clauses(64, 64, "mask kv_idx < 20;")), "classes differ");
  EXPECT_EQ(seen(chunks, of_clauses(64, 64, "score score + 0.5 * kv_idx;")), "classes differ");
  EXPECT_EQ(seen(chunks, of_clauses(64, 64, "score score + 0.5 * (kv_idx - q_idx);")), "true");
  EXPECT_EQ(seen(chunks, of_clauses(64, 64, "tensor t: f32[Skv]; score score + t[kv_idx];")),
            "classes differ");
}

TEST(View, WhatIsGatheredStandsAtItsPlaceInTheWhole) {
  const ir::Attention attention =
      of_clauses(64, 64, "tensor t: f32[Sq, Skv]; score score + t[q_idx, kv_idx];");
  const auto part =
      seen_through({{.begin = 1, .step = 2, .count = 32}, {.begin = 8, .count = 8}}, attention);
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(ir::to_source(*part, part->score), "score + t[q_idx * 2 + 1, kv_idx + 8]");
}

class ChangeTest : public ::testing::Test {
 protected:
  // The change of a comparison's left side, for rows and columns that are larger by 16 and 4.
  std::optional<std::int64_t> change(const std::string& expression) {
    const ir::Attention attention =
        of_clauses(64, 64, "tensor t: i32[Sq]; mask " + expression + " != 1000000;");
    return change_of(attention, attention.dag[attention.masks.at(0)].operands[0], 16, 4);
  }
};

TEST_F(ChangeTest, OfIntegers) {
  EXPECT_EQ(change("(q_idx + kv_idx)"), 20);
  EXPECT_EQ(change("(q_idx - 4 * kv_idx)"), 0);
  EXPECT_EQ(change("(q_idx // 8)"), 2);
  EXPECT_EQ(change("(q_idx % 8 + 0 * kv_idx)"), 0);
  EXPECT_EQ(change("max(q_idx, 4 * kv_idx)"), 16);
  EXPECT_EQ(change("abs(q_idx - 4 * kv_idx)"), 0);
  EXPECT_EQ(change("(q_idx // 32)"), std::nullopt);
  EXPECT_EQ(change("(q_idx % 32)"), std::nullopt);
  EXPECT_EQ(change("max(q_idx, kv_idx)"), std::nullopt);
  EXPECT_EQ(change("abs(q_idx - kv_idx)"), std::nullopt);
  EXPECT_EQ(change("(q_idx * kv_idx)"), std::nullopt);
  EXPECT_EQ(change("t[q_idx]"), std::nullopt);
}

TEST_F(ChangeTest, OfWhatMayWrapIsNotKnown) {
  EXPECT_EQ(change("(q_idx * 10000)"), 160000);
  EXPECT_EQ(change("(q_idx * 1000000000)"), std::nullopt);
}

TEST(Change, OfBooleans) {
  const auto same = [](const std::string& mask) {
    const ir::Attention attention = of_clauses(64, 64, "mask " + mask + ";");
    return change_of(attention, attention.masks.at(0), 16, 16) == 0;
  };
  EXPECT_TRUE(same("q_idx >= kv_idx"));
  EXPECT_TRUE(same("q_idx // 16 == kv_idx // 16"));
  EXPECT_TRUE(same("q_idx % 6 == kv_idx % 6"));  // though neither side is the same
  EXPECT_FALSE(same("q_idx % 6 <= kv_idx % 6"));
  EXPECT_FALSE(same("kv_idx < 20"));
}

// In each class of a random view: what the part shows is what the whole shows there.
TEST(View, OfRandomMasksShowsWhatTheWholeShows) {
  std::mt19937_64 random(3);
  const auto below = [&](std::int64_t count) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
  };
  int several = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t n = 2 + below(5), classes = 1 + below(3);
    ir::Attention attention = masks::testing::example(n * classes, n * classes);
    masks::testing::RandomMask mask(attention, random);
    attention.masks = {mask.boolean(2)};
    const bool strided = below(2) == 0;
    const Stretch stretch{0, strided ? classes : 1, n, strided ? 1 : n};
    Stretch columns = stretch;
    if (classes == 1) columns = {below(n), 1, 1};
    const View view{stretch, columns, classes};
    const auto part = seen_through(view, attention);
    if (!part) continue;
    several += classes > 1 ? 1 : 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      for (std::int64_t row = 0; row < view.rows.count; ++row) {
        for (std::int64_t column = 0; column < view.columns.count; ++column) {
          const Dense whole(attention, view.rows.index(c, row), view.columns.index(c, column));
          ASSERT_EQ(Dense(*part, row, column).all(part->masks), whole.all(attention.masks))
              << masks_of(attention) << " became " << masks_of(*part) << " in class " << c;
        }
      }
    }
  }
  EXPECT_GT(several, 50);
}

}  // namespace
}  // namespace attn::engines
