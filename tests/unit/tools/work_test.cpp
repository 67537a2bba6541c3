#include "tools/work.h"

#include <gtest/gtest.h>

#include "compiler/masks/band.h"
#include "tests/unit/tools/spec_text.h"

namespace attn::tools::work_tests {
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
}

TEST(Work, ShareOfABand) {
  for (const auto& [rows, columns] : {std::pair{10, 20}, {20, 10}, {1, 7}, {16, 16}}) {
    const Spec spec = spec_with("", rows, columns);
    for (const auto& [left, right] : {std::pair{3, 0}, {0, 0}, {100, 2}, {5, 5}}) {
      masks::Band band;
      band.left = left;
      band.right = right;
      EXPECT_DOUBLE_EQ(masks::band_share(spec.attention.dims, band),
                       counted_share(rows, columns, left, right));
    }
  }
}

TEST(Work, ShownScoresCount) {
  const Spec spec = spec_with("", 8, 8);
  EXPECT_DOUBLE_EQ(shown_flops(spec.attention, {{2 * 4 * 36, 1}}),
                   dense_flops(spec.attention) * 36 / 64);
}

TEST(Work, ABackwardHasFiveProductsOfTwo) {
  const Spec spec = spec_with("", 8, 8);  // Dqk 16, Dv 8
  const std::vector<reference::Shown> shown{{100, 1}};
  EXPECT_DOUBLE_EQ(shown_flops(spec.attention, shown, plan::Direction::backward),
                   shown_flops(spec.attention, shown) * (3 * 16 + 2 * 8) / (16 + 8));
}

// A branch has keys of its own, and each attention a share of its scores.
TEST(Work, IsThatOfAllBranches) {
  const Spec spec = spec_of(
      "attention t { dims B = 2, Hq = 4, Hkv = 2, Sq = 10, Skv = 20, D = 16; learn k2: bf16[B, "
      "Hkv, "
      "5, D]; learn v2: bf16[B, Hkv, 5, D]; branch far: k = k2, v = v2; branch near; combine far - "
      "near; }");
  const double own = 2.0 * 2 * 4 * 10 * 20 * 32, far = 2.0 * 2 * 4 * 10 * 5 * 32;
  EXPECT_EQ(dense_flops(spec.attention), own + far);
  EXPECT_EQ(own_flops(spec.attention), own);
  const std::vector<reference::Shown> shown{{2 * 4 * 10 * 5, 1}, {2 * 4 * 10 * 10, 1}};
  EXPECT_DOUBLE_EQ(shown_flops(spec.attention, shown), far + own / 2);
}

plan::Target target_of(std::int64_t sm) {
  return {"t", sm, R"({"multiProcessorCount": 132, "smClockRateKHz": 1980000})"};
}

TEST(Work, PeakIsThatOfTheTensorCores) {
  EXPECT_DOUBLE_EQ(*peak_flops(target_of(90)), 132 * 1.98e9 * 4096);  // 1.07e15
  EXPECT_DOUBLE_EQ(*peak_flops(target_of(90), DType::e4m3), 2 * *peak_flops(target_of(90)));
  EXPECT_EQ(peak_flops(target_of(70)), std::nullopt);
  EXPECT_EQ(peak_flops({"t", 90, "no JSON"}), std::nullopt);
}

TEST(Work, MoreThanThePeakIsNoCount) {
  EXPECT_EQ(possible_flops(1.0e12, 1, target_of(90)), 1.0e12);
  EXPECT_EQ(possible_flops(1.462e12, 1, target_of(90)), std::nullopt);
  EXPECT_EQ(possible_flops(1e20, 1, target_of(70)), 1e20);  // unknown architecture
}

}  // namespace
}  // namespace attn::tools::work_tests
