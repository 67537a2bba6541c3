#include "compiler/ir/block_scales.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace attn::ir {
namespace {

TEST(BlockScales, AreWholeTiles) {
  EXPECT_EQ(scale_dims(false, {2, 4, 1, 32}), (Sizes4{2, 4, 128, 4}));
  EXPECT_EQ(scale_dims(false, {2, 4, 129, 192}), (Sizes4{2, 4, 256, 8}));
  EXPECT_EQ(scale_dims(true, {2, 4, 129, 192}), (Sizes4{2, 4, 8, 256}));
}

// cuDNN's F8_128x4: element r, block j of a tile at 16 (r mod 32) + 4 (r / 32) + j.
TEST(BlockScales, AreInTheOrderOfTiles) {
  const Sizes4 columns = scale_dims(false, {2, 3, 256, 256});
  const auto place = [&](std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column) {
    return scale_place(false, columns, {b, h, row, column});
  };
  EXPECT_EQ(place(0, 0, 0, 0), 0);
  EXPECT_EQ(place(0, 0, 0, 31), 0);
  EXPECT_EQ(place(0, 0, 0, 32), 1);
  EXPECT_EQ(place(0, 0, 1, 0), 16);
  EXPECT_EQ(place(0, 0, 32, 0), 4);
  EXPECT_EQ(place(0, 0, 127, 127), 16 * 31 + 4 * 3 + 3);
  EXPECT_EQ(place(0, 0, 0, 128), 512);
  EXPECT_EQ(place(0, 0, 128, 0), 2 * 512);
  EXPECT_EQ(place(0, 1, 0, 0), 4 * 512);
  EXPECT_EQ(place(1, 0, 0, 0), 3 * 4 * 512);
}

TEST(BlockScales, AlongRowsTilesOfColumnsAreOutermost) {
  const Sizes4 rows = scale_dims(true, {2, 3, 160, 192});  // 5 blocks, 2 tiles of columns
  const auto place = [&](std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column) {
    return scale_place(true, rows, {b, h, row, column});
  };
  EXPECT_EQ(place(0, 0, 31, 0), 0);
  EXPECT_EQ(place(0, 0, 32, 0), 1);
  EXPECT_EQ(place(0, 0, 0, 1), 16);
  EXPECT_EQ(place(0, 0, 128, 0), 512);
  EXPECT_EQ(place(0, 1, 0, 0), 2 * 512);
  EXPECT_EQ(place(1, 0, 0, 0), 6 * 512);
  EXPECT_EQ(place(0, 0, 0, 128), 12 * 512);
}

TEST(BlockScales, HaveEachPlaceOnce) {
  for (const bool along_rows : {false, true}) {
    const Sizes4 of{2, 2, 130, 160}, dims = scale_dims(along_rows, of);
    std::set<std::int64_t> places;
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t row = 0; row < 130; row += along_rows ? kBlock : 1) {
          for (std::int64_t column = 0; column < 160; column += along_rows ? 1 : kBlock) {
            const std::int64_t place = scale_place(along_rows, dims, {b, h, row, column});
            EXPECT_TRUE(places.insert(place).second);
            EXPECT_LT(place, dims[0] * dims[1] * dims[2] * dims[3]);
          }
        }
      }
    }
  }
}

TEST(BlockScales, AreTheLeastThatDoNotSaturate) {
  EXPECT_EQ(block_scale(448, DType::e4m3), 1);
  EXPECT_EQ(block_scale(448.5, DType::e4m3), 2);
  EXPECT_EQ(block_scale(225, DType::e4m3), 1);
  EXPECT_EQ(block_scale(224, DType::e4m3), 0.5);
  EXPECT_EQ(block_scale(57344, DType::e5m2), 1);
  EXPECT_EQ(block_scale(0, DType::e4m3), 0x1p-127);
  EXPECT_EQ(block_scale(1e-60, DType::e4m3), 0x1p-127);
  EXPECT_TRUE(std::isnan(block_scale(std::numeric_limits<double>::infinity(), DType::e4m3)));
  std::vector<double> block = {900, -3, 0.01};  // the scale is 4: 225 is between 224 and 240
  round_block(block, DType::e4m3);
  EXPECT_EQ(block, (std::vector<double>{896, -3, 0.0078125}));
}

}  // namespace
}  // namespace attn::ir
