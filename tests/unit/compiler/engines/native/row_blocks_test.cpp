#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/engines/native/row_lists.h"
#include "tests/unit/compiler/masks/spec_example.h"

namespace attn::engines::native {
namespace {

using masks::testing::of_spec;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

KeyBlocks listed(const std::string& clauses, const masks::Axes& axes = {}, std::int64_t rows = 64,
                 bool ordered = false) {
  return row_blocks(of_spec("attention a { dims B = 2, D = 64; dims " + clauses + " }"), axes,
                    {.rows = rows}, ordered)
      .value();
}

std::vector<KeyRun> runs_of_tile(const KeyBlocks& made, std::size_t i) {
  const TileList& list = made.lists[i];
  const auto first = made.runs.begin() + list.first;
  return {first, first + list.runs};
}

TEST(RowBlocks, AllRowsSeeAllKeys) {
  const KeyBlocks made = listed("Hq = 4, Hkv = 2, Sq = 300, Skv = 400;");
  EXPECT_EQ(made.tiles, 4);
  ASSERT_EQ(made.lists.size(), 4U);
  EXPECT_THAT(runs_of_tile(made, 3), ElementsAre(KeyRun{0, 5, false}));
  EXPECT_EQ(made.runs.size(), 1U) << "shared";
  EXPECT_FALSE(made.masked);
  EXPECT_FALSE(made.sorted);
  EXPECT_EQ(made.blocks, 2 * 4 * 4 * 5);
}

// Key 128 c is seen from row 128 c on; the rows of the diagonal are masked.
TEST(RowBlocks, FirstBlocksOfACausalMaskAreMasked) {
  const KeyBlocks made = listed("Hq = 2, Hkv = 2, Sq = 512, Skv = 512; mask q_idx >= kv_idx;");
  EXPECT_TRUE(made.sorted);
  EXPECT_EQ(made.lists[0].tile, 0);
  EXPECT_THAT(runs_of_tile(made, 0), ElementsAre(KeyRun{0, 2, true}, KeyRun{128, 6, false}));
  EXPECT_EQ(made.lists[3].tile, 3);
  EXPECT_THAT(runs_of_tile(made, 3), ElementsAre(KeyRun{384, 2, true}));
}

// Row 130 is the first that sees key 128, so blocks begin at row 128; of 32 rows, with a window.
TEST(RowBlocks, BlocksBeginAtMultiplesOf16) {
  const KeyBlocks made = listed(
      "Hq = 1, Hkv = 1, Sq = 256, Skv = 256; mask q_idx >= kv_idx + 24 && q_idx < kv_idx + 40;", {},
      32);
  EXPECT_EQ(runs_of_tile(made, 0).front().key, 16);
  EXPECT_EQ(runs_of_tile(made, 1).front().key, 144);
}

TEST(RowBlocks, KeysThatNoRowSeesHaveNone) {
  const KeyBlocks made = listed("Hq = 1, Hkv = 1, Sq = 40, Skv = 256; mask kv_idx < 100;");
  EXPECT_EQ(
      past_all_rows(of_spec("attention a { dims B = 1, Hq = 1, Sq = 40, Skv = 8, D = 64; }").dims),
      48);
  EXPECT_THAT(runs_of_tile(made, 0), ElementsAre(KeyRun{0, 1, true}));
  EXPECT_THAT(runs_of_tile(made, 1), ElementsAre());
  EXPECT_EQ(made.blocks, 2) << "of all batches";
}

TEST(RowBlocks, OrderedBlocksBeginAtMultiplesOfTheirRows) {
  const KeyBlocks made =
      listed("Hq = 1, Hkv = 1, Sq = 256, Skv = 256; mask q_idx >= kv_idx + 24;", {}, 64, true);
  EXPECT_THAT(runs_of_tile(made, 0), ElementsAre(KeyRun{0, 3, true, 0}, KeyRun{192, 1, false, 0}));
  EXPECT_THAT(runs_of_tile(made, 1), ElementsAre(KeyRun{128, 2, true, 1}));
}

// Key blocks 0 and 2 see the second half of the rows, block 1 all of them.
TEST(RowBlocks, OrderedRunsTellWhoAddsBefore) {
  const KeyBlocks made =
      listed("Hq = 1, Hkv = 1, Sq = 256, Skv = 384; mask kv_idx // 128 == 1 || q_idx >= 128;", {},
             64, true);
  EXPECT_THAT(runs_of_tile(made, 0), ElementsAre(KeyRun{128, 2, false, 0}));
  EXPECT_THAT(runs_of_tile(made, 1), ElementsAre(KeyRun{0, 2, false, 0}, KeyRun{128, 2, false, 1}));
  EXPECT_THAT(runs_of_tile(made, 2), ElementsAre(KeyRun{128, 2, false, 1}));
  ASSERT_TRUE(made.sorted);
  EXPECT_EQ(made.lists[0].tile, 0) << "tiles ascend";
}

// Heads 0 and 1 share keys: what either shows is listed, and is full only where both show it.
TEST(RowBlocks, HeadsThatShareKeysShareLists) {
  const KeyBlocks made =
      listed("Hq = 4, Hkv = 2, Sq = 256, Skv = 128; mask h >= 2 || q_idx >= 128 * h + 64;",
             {.head = true});
  ASSERT_EQ(made.lists.size(), 2U);
  EXPECT_THAT(runs_of_tile(made, 0), ElementsAre(KeyRun{64, 2, true}, KeyRun{192, 1, false}));
  EXPECT_THAT(runs_of_tile(made, 1), ElementsAre(KeyRun{0, 4, false}));
}

// A list that lacks what was not looked at any more would hide it.
TEST(RowBlocks, ADeadlineThatIsOverEndsTheSearch) {
  target::Deadline::Clock::time_point now{};
  target::Deadline deadline(std::chrono::seconds(1), [&now] {
    return now += std::chrono::milliseconds(10);  // at each look
  });
  const auto made = row_blocks(of_spec("attention a { dims B = 512, Hq = 4, Sq = 128, Skv = 256, "
                                       "D = 64; mask (q_idx + b) % 7 <= kv_idx % 5; }"),
                               {.batch = true}, {}, false, &deadline);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::worker);
  EXPECT_THAT(made.error().message, HasSubstr("s listing blocks"));
  EXPECT_LT(now.time_since_epoch(), 2 * std::chrono::seconds(1)) << "not all are looked at";
}

TEST(RowBlocks, LongListsAreRefused) {
  const auto made = row_blocks(
      of_spec(
          "attention a { dims B = 1, Hq = 1, Sq = 16, Skv = 17000000, D = 64; mask q_idx > 3; }"),
      {}, {}, false);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, HasSubstr("entries"));
}

}  // namespace
}  // namespace attn::engines::native
