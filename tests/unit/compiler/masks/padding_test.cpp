#include "compiler/masks/padding.h"

#include <gtest/gtest.h>

#include <string>

#include "compiler/engines/shared/cost.h"
#include "tests/support/contexts.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::masks::padding_tests {
namespace {

using testing::masks_of;
using testing::of_clauses;

constexpr const char* kTensors = "tensor n: i32[B]; tensor by_head: i32[B, Hq]; ";

std::optional<Padding> found(const std::string& clauses) {
  return padding(of_clauses(64, 96, kTensors + clauses), {});
}

std::string columns(const std::string& clauses) {
  const auto padding = found(clauses);
  if (!padding || !padding->columns) return "none";
  return ir::to_source(padding->attention, *padding->columns);
}

std::string rows(const std::string& clauses) {
  const auto padding = found(clauses);
  if (!padding || !padding->rows) return "none";
  return ir::to_source(padding->attention, *padding->rows);
}

TEST(Padding, IsWhatIsBehindALengthOfTheBatch) {
  EXPECT_EQ(columns("mask kv_idx < n[b];"), "min(max(n[b], 0), 96)");
  EXPECT_EQ(columns("mask n[b] > kv_idx;"), "min(max(n[b], 0), 96)");
  EXPECT_EQ(columns("mask kv_idx <= n[b];"), "min(max(n[b], -1), 95) - -1");
  EXPECT_EQ(columns("mask n[b] >= kv_idx + 2;"), "min(max(n[b], 1), 97) - 1");
  EXPECT_EQ(columns("mask !(kv_idx >= n[b]);"), "min(max(n[b], 0), 96)");
  EXPECT_EQ(rows("mask q_idx < n[b];"), "min(max(n[b], 0), 64)");
  EXPECT_EQ(rows("align bottom_right; mask q_idx < n[b];"), "min(max(n[b], 32), 96) - 32");
  EXPECT_EQ(columns("mask kv_idx < n[b] && kv_idx < b + 3;"),
            "min(min(max(n[b], 0), 96), min(max(b + 3, 0), 96))");
  EXPECT_EQ(columns("param p: i32; mask kv_idx < p;"), "min(max(p, 0), 96)");
}

TEST(Padding, LeavesTheOtherMasks) {
  const auto both = found("mask q_idx < n[b] && kv_idx < n[b] && q_idx >= kv_idx;");
  ASSERT_TRUE(both);
  EXPECT_TRUE(both->attention.lengths_q);
  EXPECT_TRUE(both->attention.lengths_kv);
  EXPECT_EQ(masks_of(both->attention), "q_idx >= kv_idx");
  EXPECT_TRUE(ir::verify(both->attention).ok());
  const auto keys = found("mask kv_idx < n[b] && kv_idx % 2 == 0;");
  ASSERT_TRUE(keys);
  EXPECT_FALSE(keys->attention.lengths_q);
  EXPECT_TRUE(ir::verify(keys->attention).ok());
}

// Each differs from padding in one respect.
TEST(Padding, IsNothingElse) {
  EXPECT_FALSE(found(""));
  EXPECT_FALSE(found("mask kv_idx < 40;"));
  EXPECT_FALSE(found("mask kv_idx >= n[b];"));
  EXPECT_FALSE(found("mask kv_idx == n[b];"));
  EXPECT_FALSE(found("mask kv_idx < n[b] || q_idx < 3;"));
  EXPECT_FALSE(found("mask kv_idx < by_head[b, h];"));
  EXPECT_FALSE(found("mask kv_idx < n[b] + q_idx;"));
  EXPECT_FALSE(found("mask 2 * kv_idx < n[b];"));
  EXPECT_FALSE(found("mask kv_idx - q_idx < n[b];"));
  EXPECT_FALSE(found("lengths kv; mask kv_idx < n[b];"));
}

TEST(Padding, IsFoundBesideLengthsOfTheOtherSide) {
  EXPECT_EQ(columns("lengths q; mask kv_idx < n[b];"), "min(max(n[b], 0), 96)");
}

TEST(Padding, OfRowsIsAMaskWhereThereIsASink) {
  EXPECT_EQ(rows("sink 1.0; mask q_idx < n[b];"), "none");
  EXPECT_EQ(columns("sink 1.0; mask kv_idx < n[b] && q_idx < n[b];"), "min(max(n[b], 0), 96)");
}

TEST(Padding, IsPredictedToTakeLessThanItsMask) {
  const ir::Attention masked = of_clauses(4096, 4096, "tensor n: i32[B]; mask kv_idx < n[b];");
  for (const bool backward : {false, true}) {
    const double as_mask = engines::predicted_ms(masked, attn::testing::in(backward));
    EXPECT_LT(engines::predicted_ms(padding(masked, {})->attention, attn::testing::in(backward)),
              0.7 * as_mask);
  }
}

}  // namespace
}  // namespace attn::masks::padding_tests
