#include "tools/work.h"

#include <gtest/gtest.h>

#include "compiler/passes/band.h"
#include "tests/unit/tools/spec_text.h"

namespace attn::tools {
namespace {

Spec spec_with(const std::string& mask, std::int64_t rows, std::int64_t columns) {
  return spec_of("attention t { dims B = 2, Hq = 4, Hkv = 2, Sq = " + std::to_string(rows) +
                 ", Skv = " + std::to_string(columns) + ", Dqk = 16, Dv = 8; " + mask +
                 " outputs o; }");
}

// Counts the visible scores one by one.
double counted_share(std::int64_t rows, std::int64_t columns, std::int64_t left,
                     std::int64_t right) {
  std::int64_t visible = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      if (column - row <= right && row - column <= left) ++visible;
    }
  }
  return static_cast<double>(visible) / static_cast<double>(rows * columns);
}

TEST(Work, DenseFlops) {
  const Spec spec = spec_with("", 10, 20);
  EXPECT_EQ(dense_flops(spec.attention), 2.0 * 2 * 4 * 10 * 20 * (16 + 8));
  EXPECT_EQ(dense_flops(spec.attention, plan::Direction::backward),
            2.0 * 2 * 4 * 10 * 20 * (3 * 16 + 2 * 8));
  EXPECT_EQ(visible_flops(spec.attention), dense_flops(spec.attention));
}

TEST(Work, ShareOfABand) {
  for (const auto& [rows, columns] : {std::pair{10, 20}, {20, 10}, {1, 7}, {16, 16}}) {
    const Spec spec = spec_with("", rows, columns);
    for (const auto& [left, right] : {std::pair{3, 0}, {0, 0}, {100, 2}, {5, 5}}) {
      passes::Band band;
      band.left = left;
      band.right = right;
      EXPECT_DOUBLE_EQ(passes::band_share(spec.attention.dims, band), counted_share(rows, columns, left, right));
    }
  }
}

TEST(Work, MasksThatAreNoBandCountAsVisible) {
  const Spec spec = spec_with("mask kv_idx % 2 == 0;", 8, 8);
  EXPECT_EQ(visible_flops(spec.attention), dense_flops(spec.attention));
}

TEST(Work, ABandCounts) {
  const Spec spec = spec_with("mask q_idx >= kv_idx;", 8, 8);
  EXPECT_DOUBLE_EQ(visible_flops(spec.attention), dense_flops(spec.attention) * 36 / 64);
}

TEST(Work, ABackwardHasFiveProductsOfTwo) {
  const Spec spec = spec_with("mask q_idx >= kv_idx;", 8, 8);  // of widths 16 and 8
  const double forward = visible_flops(spec.attention);
  EXPECT_EQ(visible_flops(spec.attention, plan::Direction::forward), forward);
  EXPECT_DOUBLE_EQ(visible_flops(spec.attention, plan::Direction::backward),
                   forward * (3 * 16 + 2 * 8) / (16 + 8));
}

}  // namespace
}  // namespace attn::tools
