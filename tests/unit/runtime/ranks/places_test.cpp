#include "runtime/ranks/places.h"

#include <gmock/gmock.h>

#include "runtime/ranks/merge_rows.h"

namespace attn::ranks {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Intervals kSet = {{2, 4}, {8, 12}};

TEST(Places, HaveRunsOfRows) {
  EXPECT_EQ(position(kSet, 0), 0);
  EXPECT_EQ(position(kSet, 9), 3);
  EXPECT_EQ(position(kSet, 20), 6);
  EXPECT_EQ(run_of(kSet, {{3, 4}, {8, 9}}), 1) << "adjacent in the set";
  EXPECT_EQ(run_of(kSet, {{2, 3}, {8, 9}}), std::nullopt) << "3 is between";
  EXPECT_EQ(run_of(kSet, {{4, 5}}), std::nullopt);
  EXPECT_EQ(run_of(kSet, kSet), 0);
}

TEST(Places, HaveViews) {
  const Place place = dense({{Address::In::memory, 0, 1000}, DType::bf16, 1, {0, 4}, kSet, 8, {}});
  EXPECT_EQ(place.strides, (Strides{6 * 32, 8, 32}));
  const auto rows = view(place, {0, 4}, {{8, 12}});
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->at.offset, 1000 + 2 * 32 * 2);
  EXPECT_TRUE(is_dense(*rows));
  const auto heads = view(place, {1, 3}, {{8, 12}});
  ASSERT_TRUE(heads);
  EXPECT_EQ(heads->at.offset, 1000 + (2 * 32 + 8) * 2);
  EXPECT_FALSE(is_dense(*heads));
  EXPECT_FALSE(view(place, {0, 5}, {{8, 12}}));
}

TEST(MergeRows, ListWhatEachRowIsMergedFrom) {
  const Intervals some = {{3, 4}, {8, 10}};
  MergeRows rows;
  rows.add({kHome, kSet, {{2, 4}, {8, 9}}}, {&kSet, &some});
  EXPECT_THAT(rows.first(), ElementsAre(0, 2, 5, 8));
  EXPECT_THAT(rows.entries(), ElementsAre(kHome, 0, kFirstPlace, 0,  // 2
                                          kHome, 1, kFirstPlace, 1, kFirstPlace + 1, 0, kHome, 2,
                                          kFirstPlace, 2, kFirstPlace + 1, 1));
  EXPECT_THAT(rows.numbers(), ElementsAre(2, 3, 8));
  EXPECT_FALSE(rows.shorten());
  EXPECT_EQ(rows.count(), 3);
}

TEST(MergeRows, OfAdjacentRowsAreOneList) {
  const Intervals all = {{0, 8}};
  MergeRows rows;
  rows.add({kHome, all, {{4, 8}}}, {&all});
  EXPECT_EQ(rows.count(), 4);
  EXPECT_TRUE(rows.shorten());
  EXPECT_THAT(rows.first(), ElementsAre(0, 2));
  EXPECT_THAT(rows.entries(), ElementsAre(kHome, 4, kFirstPlace, 4));
  MergeRows none;
  EXPECT_FALSE(none.shorten());
  EXPECT_THAT(none.entries(), IsEmpty());
}

}  // namespace
}  // namespace attn::ranks
