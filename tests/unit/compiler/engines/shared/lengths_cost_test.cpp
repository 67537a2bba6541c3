#include <gtest/gtest.h>

#include "compiler/engines/shared/cost.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/masks/mask_analysis.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines {
namespace {

ir::Attention attention(const std::string& clauses) {
  return masks::testing::of_spec(
      "attention a { dims B = 16, Hq = 8, Hkv = 8, Sq = 1, Skv = 8192, D = 64; " + clauses + " }");
}

double keys_of(const std::vector<BatchesOfLength>& lengths) {
  double keys = 0;
  for (const BatchesOfLength& each : lengths) {
    keys += each.batches * static_cast<double>(each.keys);
  }
  return keys;
}

TEST(Lengths, AreThoseThatTheSpecDeclares) {
  const auto full = expected_lengths(attention(""));
  ASSERT_EQ(full.size(), 1U);
  EXPECT_EQ(full[0].batches, 16);
  EXPECT_EQ(full[0].keys, 8192);
  const auto linear = expected_lengths(attention("lengths kv = (i0 + 1) * Skv // B;"));
  EXPECT_GT(linear.size(), 1U);
  EXPECT_LE(linear.size(), kMostLengths);
  EXPECT_NEAR(keys_of(linear), 8192 * 8.5, 32);
  EXPECT_FALSE(assumes_lengths(attention("lengths kv = 100;")));
}

TEST(Lengths, WithoutADeclarationAreHalf) {
  const ir::Attention unknown = attention("lengths kv;");
  EXPECT_TRUE(assumes_lengths(unknown));
  const auto half = expected_lengths(unknown);
  ASSERT_EQ(half.size(), 1U);
  EXPECT_EQ(half[0].keys, 4096);
}

TEST(Lengths, ABatchThatIsMuchLongerIsAlone) {
  const auto lengths = expected_lengths(attention("lengths kv = where(i0 == 3, Skv, 64);"));
  ASSERT_EQ(lengths.size(), 2U);
  EXPECT_EQ(lengths[1].batches, 1);
  EXPECT_EQ(lengths[1].keys, 8192);
}

// Masks that are aligned with the last key read lengths.
TEST(Lengths, MasksOfBatchesOfALengthReadNone) {
  const ir::Attention window = attention(
      "lengths kv = Skv - 128 * i0; align bottom_right; "
      "mask q_idx >= kv_idx && q_idx - kv_idx < 128;");
  const ir::Attention alone = of_length(window, {1, 1, 1000});
  EXPECT_FALSE(alone.lengths_kv);
  EXPECT_EQ(alone.dims[ir::Dim::Skv], 1000);
  const masks::Band band = masks::analyzed(alone, {})->band();
  EXPECT_FALSE(band.right);  // row 0 is the last
  EXPECT_EQ(band.left, -872);
}

// A window takes as long with lengths as without.
TEST(Lengths, BoundTheWorkByWhatAWindowShows) {
  const std::string window = "align bottom_right; mask q_idx >= kv_idx && q_idx - kv_idx < 128;";
  const double without = predicted_ms(attention(window), {});
  const double with = predicted_ms(attention("lengths kv = Skv - 128 * i0; " + window), {});
  EXPECT_NEAR(with / without, 1, 0.25);
  EXPECT_LT(with, 0.7 * predicted_ms(attention("lengths kv = Skv - 128 * i0;"), {}));
}

}  // namespace
}  // namespace attn::engines
