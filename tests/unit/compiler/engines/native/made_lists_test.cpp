#include "compiler/engines/native/made_lists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attn::engines::native {
namespace {

using ::testing::ElementsAre;

TEST(MadeLists, HaveWordsForEachTile) {
  const MadeLists lists{.lists = 2, .tiles = 7, .cells = 33, .cells_of_block = 4};
  EXPECT_EQ(lists.most_runs(), 9);
  plan::Program program;
  plan::KernelStep step;
  add_lists(lists, 4, "native.counter", {plan::TensorOperand{"d"}}, program, step);
  EXPECT_THAT(step.outputs, ElementsAre("native.tiles", "native.sorted", "native.runs"));
  std::vector<std::int64_t> words;
  for (const plan::TensorInfo& tensor : program.internals) words.push_back(tensor.dims[0]);
  EXPECT_THAT(words, ElementsAre(14 * 4, 14 * 4, 14 * 2 * 9));
  ASSERT_EQ(step.launches.size(), 1U);
  EXPECT_EQ(step.launches[0].grid[0], 2 * 2) << "4 tiles and 3";
  EXPECT_EQ(step.launches[0].shared_bytes, 7 * 4) << "to sort 7";
  EXPECT_EQ(step.launches[0].arguments.size(), 5U);
}

// Up to 2^28 words, of which these have 2 + 8 a tile.
TEST(MadeLists, HaveALimit) {
  const std::int64_t most = (std::int64_t{1} << 28) / 10 / 1000;
  EXPECT_TRUE((MadeLists{.lists = 1000, .tiles = most}.fit()));
  EXPECT_FALSE((MadeLists{.lists = 1000, .tiles = most + 1}.fit()));
}

TEST(MadeLists, AreNotLongerThanABlockOfThreadsCanSort) {
  const std::int64_t most = std::int64_t{1} << 15;
  EXPECT_TRUE((MadeLists{.tiles = most}.fit()));
  EXPECT_FALSE((MadeLists{.tiles = most + 1}.fit()));
}

// Two blocks of threads for each multiprocessor.
TEST(MadeLists, BlocksOfThreadsListSeveralTilesWhereTheseAreMany) {
  const auto of_block = [](std::int64_t tiles) {
    return MadeLists{.lists = 2, .tiles = tiles}.tiles_of_block(100);
  };
  EXPECT_EQ(of_block(100), 1);
  EXPECT_EQ(of_block(101), 2);
  EXPECT_EQ(of_block(100'000), 8);
}

}  // namespace
}  // namespace attn::engines::native
