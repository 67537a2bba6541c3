#include "compiler/masks/happens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ast/parse.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/masks/open_boxes.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/sema/analyze.h"

namespace attn::masks {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ir::Attention written(int size, const std::string& clauses) {
  const std::string text = "attention x { dims B = 1, Hq = 1, D = 8, Sq = " + std::to_string(size) +
                           "; " + clauses + " }";
  const support::Source source("x.attn", text);
  diag::Sink sink(source);
  auto attention = sema::analyze(*ast::parse(source, sink), {}, sink);
  EXPECT_TRUE(attention) << diag::to_text(sink);
  return *attention;
}

Happenings happenings_of(const ir::Attention& attention) {
  return happenings(attention, analyzed(rewrite::simplify(attention), {})->form().band);
}

std::vector<std::int64_t> values(const Happenings& happenings) {
  std::vector<std::int64_t> values;
  for (const Happening& one : happenings.found) values.push_back(one.value);
  return values;
}

TEST(Happens, FurthestOutsideIsTheValue) {
  const auto shifts =
      happenings_of(written(64, "mask q_idx >= kv_idx && 1 << q_idx - kv_idx > 0;"));
  EXPECT_THAT(values(shifts), ElementsAre(63));
  const auto wraps = happenings_of(
      written(65536, "mask q_idx >= kv_idx; mask q_idx * 1000000 >= kv_idx * 1000000;"));
  EXPECT_THAT(values(wraps), ElementsAre(65535000000, 65535000000));
  EXPECT_FALSE(wraps.stopped);
}

TEST(Happens, UsersLeadFromTheOperationToARoot) {
  const ir::Attention attention =
      written(8,
              "tensor t: f32[Skv]; score where(kv_idx + 1 < Skv, t[kv_idx + 1], 0) + "
              "t[kv_idx + 1] * score;");
  const Happenings happenings = happenings_of(attention);
  ASSERT_EQ(happenings.found.size(), 1U);
  const std::vector<ir::ExprId>& users = happenings.found[0].users;
  ASSERT_EQ(users.size(), 2U);
  EXPECT_TRUE(attention.dag[users[0]].is(ir::Op::mul_)) << "not the select";
  EXPECT_EQ(users[1], attention.score);
}

// The product is a prime too large for either index: only single scores show that it never occurs.
TEST(Happens, SearchesThatAreStoppedSaySo) {
  const auto hidden =
      happenings_of(written(10240, "score where(q_idx * kv_idx == 10000019, inf, score);"));
  EXPECT_THAT(hidden.found, IsEmpty());
  EXPECT_TRUE(hidden.stopped);
  std::string masks;
  for (int i = 0; i < 40; ++i) {
    masks += "mask q_idx * " + std::to_string(1000000 + i) + " != 3; ";
  }
  const Happenings many = happenings_of(written(8192, masks));
  EXPECT_EQ(many.found.size(), static_cast<std::size_t>(kMostHappenings));
  EXPECT_TRUE(many.stopped);
  const Happenings none = happenings_of(written(8192, "mask q_idx >= kv_idx;"));
  EXPECT_THAT(none.found, IsEmpty());
  EXPECT_FALSE(none.stopped);
}

TEST(Happens, HidesAllEndsWithItsEffort) {
  const ir::Attention attention =
      written(65536, "mask q_idx < kv_idx && kv_idx < q_idx && q_idx % 2 == 0;");
  Effort effort;
  EXPECT_TRUE(hides_all(attention, effort));
  Effort little(100);
  EXPECT_FALSE(hides_all(attention, little));
  EXPECT_TRUE(little.is_spent());
}

TEST(OpenBoxes, TakeTurns) {
  const auto box = [](std::int64_t row) { return Box{{}, {}, {row, row}, {}}; };
  OpenBoxes open;
  open.push(box(0), {.below = 0, .above = 9});
  open.push(box(1), {.below = 9, .above = 0});
  open.push(box(2), {.below = 1, .above = 1});
  open.push(box(3), {.below = 0, .above = 0});
  EXPECT_EQ(open.pop(), box(3)) << "the last";
  EXPECT_EQ(open.pop(), box(0)) << "furthest above";
  EXPECT_EQ(open.pop(), box(1)) << "furthest below";
  EXPECT_EQ(open.pop_beyond({.below = 0, .above = 1}), std::nullopt);
  EXPECT_EQ(open.pop(), box(2));
  EXPECT_EQ(open.pop(), std::nullopt);
}

}  // namespace
}  // namespace attn::masks
