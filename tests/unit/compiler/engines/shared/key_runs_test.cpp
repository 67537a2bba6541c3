#include "compiler/engines/shared/key_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>

namespace attn::engines {
namespace {

using masks::Block;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// ".": empty, "#": full, "/": partial
std::vector<KeyRun> runs(const std::string& text, std::int64_t per_block) {
  std::vector<Block> cells;
  for (const char c : text) {
    cells.push_back(c == '.' ? Block::empty : c == '#' ? Block::full : Block::partial);
  }
  return runs_of(stretches_of(cells), static_cast<std::int64_t>(cells.size()), per_block * kCell,
                 kCell);
}

TEST(RunsOf, AdjacentBlocksOfOneKindAreARun) {
  EXPECT_THAT(runs("", 4), IsEmpty());
  EXPECT_THAT(runs("....", 4), IsEmpty());
  EXPECT_THAT(runs("########", 4), ElementsAre(KeyRun{0, 2, false}));
  EXPECT_THAT(runs("####////", 4), ElementsAre(KeyRun{0, 1, false}, KeyRun{64, 1, true}));
}

TEST(RunsOf, BlocksBeginWhereSomethingIsVisible) {
  EXPECT_THAT(runs("...####.####", 4), ElementsAre(KeyRun{48, 1, false}, KeyRun{128, 1, false}));
  EXPECT_THAT(runs("...###.#", 4), ElementsAre(KeyRun{48, 1, true}, KeyRun{112, 1, false}));
}

TEST(RunsOf, TheLastBlockMayReachPastTheKeys) {
  EXPECT_THAT(runs("#####", 4), ElementsAre(KeyRun{0, 2, false}));
}

// One cell after another.
std::vector<KeyRun> expected_runs(const std::vector<Block>& cells, std::int64_t keys) {
  const auto per_block = static_cast<std::size_t>(keys / kCell);
  std::vector<KeyRun> runs;
  for (std::size_t at = 0; at < cells.size();) {
    if (cells[at] == Block::empty) {
      ++at;
      continue;
    }
    bool masked = false;
    for (std::size_t i = at; i < std::min(cells.size(), at + per_block); ++i) {
      masked |= cells[i] != Block::full;
    }
    const auto key = static_cast<std::int64_t>(at) * kCell;
    const bool adjacent = !runs.empty() && runs.back().masked == masked &&
                          runs.back().key + runs.back().blocks * keys == key;
    if (!adjacent) runs.push_back({key, 0, masked});
    ++runs.back().blocks;
    at += per_block;
  }
  return runs;
}

TEST(RunsOf, AreThoseOfEachCell) {
  std::mt19937 random;
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int n = 0; n < 3000; ++n) {
    std::vector<Block> cells;
    const int most = 1 + below(12);
    while (static_cast<int>(cells.size()) < n % 97) {
      const auto block = std::array{Block::empty, Block::partial, Block::full, Block::full};
      cells.insert(cells.end(), static_cast<std::size_t>(1 + below(most)),
                   block[static_cast<std::size_t>(below(4))]);
    }
    const std::int64_t keys = (1 + below(12)) * kCell;
    ASSERT_EQ(runs_of(stretches_of(cells), static_cast<std::int64_t>(cells.size()), keys, kCell),
              expected_runs(cells, keys));
  }
}

TEST(Stretches, AreJoinedInAnyOrder) {
  const Block full = Block::full, partial = Block::partial;
  EXPECT_THAT(joined({}), IsEmpty());
  EXPECT_THAT(joined({{4, 5, full}, {0, 1, full}, {2, 3, full}, {6, 6, partial}, {8, 8, partial}}),
              ElementsAre(CellRun{0, 5, full}, CellRun{6, 6, partial}, CellRun{8, 8, partial}));
}

}  // namespace
}  // namespace attn::engines
