#include "runtime/graph/extent.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace attn {
namespace {

using Dims = std::vector<std::int64_t>;
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(LastOffset, IsTheSumOfTheLargestSteps) {
  EXPECT_EQ(last_offset(Dims{2, 3}, Dims{10, 1}), 12);
  EXPECT_EQ(last_offset(Dims{1, 1}, Dims{10, 7}), 0);
  EXPECT_EQ(last_offset(Dims{5, 4}, Dims{0, 1}), 3);
  EXPECT_EQ(last_offset(Dims{}, Dims{}), 0);
}

TEST(LastOffset, RefusesWhatHasNoMeaningOrDoesNotFit) {
  EXPECT_EQ(last_offset(Dims{2}, Dims{1, 1}), std::nullopt);
  EXPECT_EQ(last_offset(Dims{0}, Dims{1}), std::nullopt);
  EXPECT_EQ(last_offset(Dims{-1}, Dims{1}), std::nullopt);
  EXPECT_EQ(last_offset(Dims{2}, Dims{-1}), std::nullopt);
  EXPECT_EQ(last_offset(Dims{kMax}, Dims{2}), std::nullopt);
  EXPECT_EQ(last_offset(Dims{kMax}, Dims{1}), std::nullopt);
  EXPECT_EQ(last_offset(Dims{2, 2}, Dims{kMax, kMax}), std::nullopt);
  EXPECT_EQ(last_offset(Dims{std::int64_t{1} << 60}, Dims{1}), (std::int64_t{1} << 60) - 1);
}

constexpr std::int64_t kTwoTo40 = std::int64_t{1} << 40;

TEST(ElementCount, IsTheProductWhereItFits) {
  EXPECT_EQ(element_count(Dims{2, 3, 4}), 24);
  EXPECT_EQ(element_count(Dims{}), 1);
  EXPECT_EQ(element_count(Dims{2, 0}), std::nullopt);
  EXPECT_EQ(element_count(Dims{2, -1}), std::nullopt);
  EXPECT_EQ(element_count(Dims{kTwoTo40, kTwoTo40}), std::nullopt);
  EXPECT_EQ(element_count(Dims{kMax}), std::nullopt);
  EXPECT_EQ(element_count(Dims{kTwoTo40, 1 << 19}), std::int64_t{1} << 59);
}

// Also if strides of 0 make many elements share an address.
TEST(FitsMemory, CountsEveryElementAndTheLastPlace) {
  EXPECT_TRUE(fits_memory(Dims{kTwoTo40, 1 << 17}, Dims{1 << 17, 1}, 8));
  EXPECT_FALSE(fits_memory(Dims{kTwoTo40, 1 << 18}, Dims{1 << 18, 1}, 8));
  EXPECT_FALSE(fits_memory(Dims{1 << 30, 1 << 30}, Dims{0, 0}, 8));
  EXPECT_FALSE(fits_memory(Dims{2}, Dims{std::int64_t{1} << 57}, 8));
  EXPECT_FALSE(fits_memory(Dims{2}, Dims{1, 1}, 8));
}

TEST(RowMajorStrides, DoNotWrapAround) {
  EXPECT_EQ(row_major_strides(Dims{2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(row_major_strides(Dims{2, kTwoTo40, kTwoTo40}), (Dims{kMax, kTwoTo40, 1}));
  EXPECT_EQ(row_major_strides(Dims{2, 2, kTwoTo40, kTwoTo40}), (Dims{kMax, kMax, kTwoTo40, 1}));
}

TEST(Overlaps, UnlessEveryStrideStepsOverTheSmallerOnes) {
  EXPECT_FALSE(overlaps(Dims{2, 3, 4}, Dims{12, 4, 1}));
  EXPECT_FALSE(overlaps(Dims{2, 3, 4}, Dims{1, 2, 6}));  // in any order
  EXPECT_FALSE(overlaps(Dims{2, 3, 4}, Dims{100, 9, 2}));
  EXPECT_TRUE(overlaps(Dims{2, 3, 4}, Dims{11, 4, 1}));
  EXPECT_TRUE(overlaps(Dims{2, 3, 4}, Dims{12, 3, 1}));
  EXPECT_TRUE(overlaps(Dims{2, 3}, Dims{0, 1}));
}

TEST(Overlaps, NotWithoutASecondElement) {
  EXPECT_FALSE(overlaps(Dims{1, 3}, Dims{0, 1}));
  EXPECT_FALSE(overlaps(Dims{2, 0}, Dims{0, 1}));
}

}  // namespace
}  // namespace attn
