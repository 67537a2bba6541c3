// The order of tiles that blocks of threads take.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "tests/unit/compiler/programs/warps_on_host.h"
#define asm ATTN_ASM_ON_HOST
#include "tests/host/gpu/cuda.h"
// After what it is compiled with.
#include "attn/sections.cuh"

namespace attn {
namespace {

using kernels::UnitTile;
using ::testing::ElementsAre;
using Tiles = std::vector<std::pair<int, int>>;  // unit, place

template <int kUnits, int kTiles, int kSection, int kFront>
Tiles all_tiles() {
  Tiles all;
  for (int n = 0; n < kUnits * kTiles; ++n) {
    const UnitTile tile = kernels::tile_in_sections<kUnits, kTiles, kSection, kFront>(n);
    all.emplace_back(tile.unit, tile.place);
  }
  return all;
}

TEST(Sections, TheLongestTilesOfEachSectionComeFirst) {
  EXPECT_THAT((all_tiles<3, 2, 2, 0>()),
              ElementsAre(std::pair(0, 0), std::pair(1, 0), std::pair(0, 1), std::pair(1, 1),
                          std::pair(2, 0), std::pair(2, 1)));
}

TEST(Sections, TheFrontComesBeforeThem) {
  EXPECT_THAT((all_tiles<2, 3, 1, 1>()),
              ElementsAre(std::pair(0, 0), std::pair(1, 0), std::pair(0, 1), std::pair(0, 2),
                          std::pair(1, 1), std::pair(1, 2)));
}

template <int kUnits, int kTiles, int kSection, int kFront>
void expect_each_once() {
  const Tiles all = all_tiles<kUnits, kTiles, kSection, kFront>();
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size());
  for (const auto& [unit, place] : all) {
    EXPECT_TRUE(unit >= 0 && unit < kUnits && place >= 0 && place < kTiles);
  }
}

TEST(Sections, EachTileComesOnce) {
  expect_each_once<1, 1, 1, 0>();
  expect_each_once<7, 5, 3, 0>();
  expect_each_once<7, 5, 3, 4>();
  expect_each_once<7, 33, 8, 1>();
  expect_each_once<8, 64, 2, 2>();
  expect_each_once<5, 40, 100, 3>();
}

}  // namespace
}  // namespace attn
