// Which masks become a table for attnc's own kernels. Kernels that read one are compared with the
// reference by tests/host (tests/gpu/native/loops.attn, backward_mask_table.attn).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/engines/native/native.h"
#include "compiler/reference/row_evaluator.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines {
namespace {

using ir::ExprId;
using ::testing::ElementsAre;
using ::testing::SizeIs;

// B 2, Hq 4, 24 rows, 40 columns.
ir::Attention with_clauses(const std::string& clauses) {
  return masks::testing::of_clauses(24, 40,
                                    "tensor chosen: i32[B, Sq, 40] = (i1 * 7 + i2 * i2 * 3) % Skv; "
                                    "tensor of_head: i32[Hq, Sq, 40] = i0 + i2; " +
                                        clauses);
}

TEST(MaskTable, HasTheTermsOfManyOperationsThatReadTensors) {
  const auto made = with_mask_table(with_clauses(
      "mask any(t in 0..40: chosen[b, q_idx, t] == kv_idx); mask q_idx + 20 >= kv_idx;"));
  ASSERT_TRUE(made.has_value());
  ASSERT_THAT(made->derived, SizeIs(1));
  EXPECT_THAT(made->derived[0].dims, ElementsAre(2, 24, 40));
  EXPECT_EQ(masks::testing::masks_of(made->attention),
            "q_idx + 20 >= kv_idx && mask_table[b, q_idx, kv_idx] > 0.0");
}

TEST(MaskTable, IsOfEachHeadThatDiffers) {
  const auto made = with_mask_table(
      with_clauses("mask any(t in 0..40: of_head[h, q_idx, t] == kv_idx || t == h);"));
  ASSERT_TRUE(made.has_value());
  EXPECT_THAT(made->derived[0].dims, ElementsAre(4, 24, 40));
}

TEST(MaskTable, IsNotMadeOfFewOperationsNorOfIndicesAlone) {
  EXPECT_FALSE(
      with_mask_table(with_clauses("mask any(t in 0..4: chosen[b, q_idx, t] == kv_idx);")));
  EXPECT_FALSE(with_mask_table(with_clauses("mask any(t in 0..40: q_idx == kv_idx + t * t);")));
}

TEST(MaskTable, IsNotMadeBeyondItsMemory) {
  const auto made = [](std::int64_t rows) {
    return with_mask_table(
        masks::testing::of_clauses(rows, 16384,
                                   "tensor chosen: i32[Sq, 40]; "
                                   "mask any(t in 0..40: chosen[q_idx, t] == kv_idx);"));
  };
  EXPECT_TRUE(made(32768));
  EXPECT_FALSE(made(32769));
}

}  // namespace
}  // namespace attn::engines
