#include "runtime/io/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace attn::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Dims = std::vector<std::int64_t>;

std::vector<double> counting(std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

std::vector<double> as_bytes(const std::vector<std::byte>& bytes) {
  std::vector<double> values;
  for (std::byte byte : bytes) values.push_back(std::to_integer<int>(byte));
  return values;
}

TEST(Layout, StorageCountsFromFirstToLastElement) {
  EXPECT_EQ(storage_elements({2, 3}, {3, 1}).value(), 6);
  EXPECT_EQ(storage_elements({2, 3}, {8, 2}).value(), 13);
  EXPECT_EQ(storage_elements({2, 3}, {0, 1}).value(), 3);
  EXPECT_EQ(storage_elements({}, {}).value(), 1);
  EXPECT_EQ(storage_elements({4, 0}, {1, 1}).value(), 0);
}

TEST(Layout, StorageRefusesWhatNoMemoryHolds) {
  EXPECT_EQ(storage_elements({2}, {1, 1}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(storage_elements({2}, {-1}).error().code, ErrorCode::invalid_argument);
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_EQ(storage_elements({3}, {huge}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(storage_elements({huge, 4}, {0, 0}).error().code, ErrorCode::invalid_argument);
}

TEST(Layout, DenseStridesAreRowMajor) {
  EXPECT_THAT(dense_strides({2, 3, 4}), ElementsAre(12, 4, 1));
  EXPECT_TRUE(dense_strides({}).empty());
}

TEST(Layout, PackFollowsStridesAndMarksGaps) {
  Result<std::vector<std::byte>> bytes =
      pack(counting(4), {2, 2}, {1, 3}, DType::u8, std::byte{255});
  ASSERT_TRUE(bytes.ok());
  EXPECT_THAT(as_bytes(*bytes), ElementsAre(1, 3, 255, 2, 4));
}

// Every storage order of a [B, H, S, D] tensor, dense and padded.
TEST(Layout, UnpackUndoesPackForEveryPermutation) {
  const Dims dims = {2, 3, 5, 4};
  for (std::int64_t padding : {0, 3}) {
    std::vector<std::size_t> order = {0, 1, 2, 3};
    do {
      Dims strides(4);
      std::int64_t stride = 1;
      for (std::size_t axis : order) {
        strides[axis] = stride;
        stride = stride * dims[axis] + padding;
      }
      const std::vector<double> values = counting(element_count(dims));
      for (DType type : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::i64}) {
        Result<std::vector<std::byte>> bytes = pack(values, dims, strides, type);
        ASSERT_TRUE(bytes.ok()) << bytes.error().to_text();
        Result<HostTensor> tensor = unpack(*bytes, dims, strides, type);
        ASSERT_TRUE(tensor.ok());
        EXPECT_EQ(tensor->values, values);
        EXPECT_EQ(tensor->dtype, type);
        EXPECT_EQ(tensor->dims, dims);
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(Layout, StridesOfSizeOneDimsDoNotMatter) {
  Result<std::vector<std::byte>> bytes = pack(counting(3), {1, 3, 1}, {0, 1, 7}, DType::u8);
  ASSERT_TRUE(bytes.ok());
  EXPECT_THAT(as_bytes(*bytes), ElementsAre(1, 2, 3));
}

TEST(Layout, PackTakesEqualElementsThatShareAPlace) {
  const std::vector<double> values = {5, 6, 5, 6};
  Result<std::vector<std::byte>> bytes = pack(values, {2, 2}, {0, 1}, DType::u8);
  ASSERT_TRUE(bytes.ok());
  EXPECT_THAT(*bytes, ElementsAre(std::byte{5}, std::byte{6}));
}

TEST(Layout, PackRefusesElementsThatDifferAndShareAPlace) {
  Result<std::vector<std::byte>> shared = pack(counting(6), {2, 3}, {1, 1}, DType::u8);
  ASSERT_FALSE(shared.ok());
  EXPECT_THAT(shared.error().message, HasSubstr("two elements of a tensor [2, 3] to one address"));
  EXPECT_FALSE(pack(counting(4), {2, 2}, {0, 1}, DType::u8).ok());
}

TEST(Layout, PackAcceptsInterleavedButDistinctPlaces) {
  Result<std::vector<std::byte>> bytes = pack(counting(6), {2, 3}, {3, 2}, DType::u8);
  ASSERT_TRUE(bytes.ok());
  EXPECT_THAT(as_bytes(*bytes), ElementsAre(1, 0, 2, 4, 3, 5, 0, 6));
}

TEST(Layout, UnpackReadsBroadcasts) {
  const std::vector<std::byte> bytes = {std::byte{7}, std::byte{8}};
  EXPECT_THAT(unpack(bytes, {2, 2}, {0, 1}, DType::u8)->values, ElementsAre(7, 8, 7, 8));
}

TEST(Layout, UnpackRefusesShortMemory) {
  const std::vector<std::byte> bytes(7);
  EXPECT_EQ(unpack(bytes, {2}, {1}, DType::f32).error().code, ErrorCode::invalid_argument);
}

TEST(Layout, PackSaysWhichValueDoesNotFit) {
  const std::vector<double> values = {0, 1, 2, 1.5};
  Result<std::vector<std::byte>> fraction = pack(values, {2, 2}, {2, 1}, DType::i32);
  ASSERT_FALSE(fraction.ok());
  EXPECT_EQ(fraction.error().message, "value 1.5 at [1, 1] is not an integer, as required for i32");
  Result<std::vector<std::byte>> large = pack(values, {2, 2}, {2, 1}, DType::boolean);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().message, "value 2 at [1, 0] is out of range for bool");
  EXPECT_FALSE(pack(values, {3}, {1}, DType::f32).ok());
}

}  // namespace
}  // namespace attn::io
