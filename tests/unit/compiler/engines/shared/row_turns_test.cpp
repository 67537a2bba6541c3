#include <gtest/gtest.h>

#include "compiler/engines/shared/rows.h"

namespace attn::engines {

void PrintTo(const RowTurns& tile, std::ostream* stream) {
  *stream << tile.turns << " of " << tile.rows << " from " << tile.first;
}

namespace {

using Tiles = std::vector<RowTurns>;

TEST(RowTurns, AreTheSameWhereThatCostsLittle) {
  EXPECT_EQ(in_turns(4096, 114), (Tiles{{0, 64, 64}}));
  EXPECT_EQ(in_turns(4096, 4095), (Tiles{{0, 2048, 2}}));
  EXPECT_EQ(in_turns(777, 300), (Tiles{{0, 259, 3}}));
  EXPECT_EQ(in_turns(8, 1), (Tiles{{0, 1, 8}}));
  EXPECT_EQ(in_turns(8, 0), (Tiles{{0, 1, 8}}));
}

TEST(RowTurns, ElseTheLastIsSmaller) {
  EXPECT_EQ(in_turns(1009, 100), (Tiles{{0, 96, 10}, {960, 49, 1}}));
  EXPECT_EQ(in_turns(7, 3), (Tiles{{0, 3, 2}, {6, 1, 1}}));
  EXPECT_EQ(in_turns(1009, 900), (Tiles{{0, 896, 1}, {896, 113, 1}}));
}

TEST(RowTurns, AreAllRowsOnceInNoMoreThanFit) {
  for (std::int64_t rows = 2; rows < 200; ++rows) {
    for (std::int64_t most = 1; most < rows; ++most) {
      std::int64_t next = 0;
      for (const RowTurns& tile : in_turns(rows, most)) {
        EXPECT_EQ(tile.first, next);
        EXPECT_GE(tile.rows, 1);
        EXPECT_LE(tile.rows, most);
        EXPECT_GE(tile.turns, 1);
        next += tile.rows * tile.turns;
      }
      ASSERT_EQ(next, rows) << most;
    }
  }
}

}  // namespace
}  // namespace attn::engines
