#include <gmock/gmock.h>

#include "compiler/pictures/computed.h"

namespace attn::pictures {
namespace {

using masks::Block;

std::vector<int> owners(const Computed& made) {
  std::vector<int> owners;
  for (const ByKernel& cell : made.cells) owners.push_back(cell.kernel);
  return owners;
}

double all(const ranks::Interval& rows, const ranks::Interval& columns) {
  return static_cast<double>(rows.size() * columns.size());
}

// Rows 0, 1 and 4 to 7 of owner 0, and the others of owner 1, which has two parts.
TEST(Owned, CellsAreOfThoseWhoHaveAnyOfThem) {
  const std::vector<Owned> owned = {{0, {0, 2}, {{0, 2}, {4, 8}}, {{0, 8}}},
                                    {1, {0, 2}, {{2, 4}}, {{0, 4}}},
                                    {1, {0, 2}, {{2, 4}}, {{4, 8}}},
                                    {2, {2, 4}, {{0, 8}}, {{0, 8}}}};
  masks::BlockMap map;
  map.rows = map.columns = 4;
  map.height = map.width = 2;
  map.blocks = {Block::full, Block::empty, Block::partial, Block::full};
  constexpr int kNone = ByKernel::kNone, kSeveral = ByKernel::kSeveral;
  EXPECT_THAT(owners(owned_at(owned, {0, 0}, map, all)),
              ::testing::ElementsAre(kSeveral, kNone, 0, 0));
  EXPECT_THAT(owners(owned_at(owned, {5, 3}, map, all)), ::testing::ElementsAre(2, kNone, 2, 2));
  // Two of three rows.
  map.rows = 3;
  map.columns = 8;
  map.height = 3;
  map.width = 1;
  map.blocks.assign(3, Block::full);
  EXPECT_THAT(owners(owned_at(owned, {0, 0}, map, all)), ::testing::ElementsAre(0, 0, 0));
  map.rows = 2;
  map.columns = 4;
  map.width = 2;
  map.height = 4;
  map.blocks.assign(8, Block::full);
  EXPECT_THAT(owners(owned_at(owned, {0, 1}, map, all)),
              ::testing::ElementsAre(0, 0, 1, 1, 0, 0, 0, 0));
}

// Owner 0 has most of each cell, but hidden in the first one, which is partial.
TEST(Owned, WhatIsHiddenDoesNotCountInPartialCells) {
  const std::vector<Owned> owned = {{0, {0, 1}, {{0, 3}, {4, 7}}, {{0, 4}}},
                                    {1, {0, 1}, {{3, 4}, {7, 8}}, {{0, 4}}}};
  masks::BlockMap map;
  map.rows = map.columns = 4;
  map.height = 2;
  map.width = 1;
  map.blocks = {Block::partial, Block::full};
  const auto below_row_3 = [](const ranks::Interval& rows, const ranks::Interval& columns) {
    return rows.begin >= 3 ? all(rows, columns) : 0;
  };
  EXPECT_THAT(owners(owned_at(owned, {0, 0}, map, below_row_3)), ::testing::ElementsAre(1, 0));
}

}  // namespace
}  // namespace attn::pictures
