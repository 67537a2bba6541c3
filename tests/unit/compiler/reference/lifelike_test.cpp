#include "compiler/reference/lifelike.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/unit/compiler/pictures/spec_text.h"

namespace attn::reference {
namespace {

constexpr const char* kSpec = R"(attention t {
  dims B = 3, Hq = 2, Hkv = 1, Sq = 100, Skv = Sq, D = 8;
  tensor doc: i32[B, Skv] monotone runs(4);
  tensor offs: i32[6] monotone;
  tensor n: i32[B];
  tensor blocks: bool[Hq, 10, 10];
  mask doc[b, q_idx] == doc[b, kv_idx] && kv_idx < n[b] && q_idx >= offs[0];
  mask blocks[h, q_idx // 10, kv_idx // 10];
  outputs o;
})";

std::vector<double> values(const char* name, const std::vector<std::int64_t>& dims,
                           std::uint64_t seed = 1) {
  const ir::Attention attention = pictures::attention_of(kSpec);
  return lifelike(attention, *attention.find_tensor(name), dims, seed);
}

TEST(Lifelike, DocumentsAreSortedAndNoMoreThanDeclared) {
  const std::vector<double> ids = values("doc", {3, 100});
  ASSERT_EQ(ids.size(), 300U);
  for (auto row = ids.begin(); row != ids.end(); row += 100) {
    EXPECT_TRUE(std::is_sorted(row, row + 100));
    EXPECT_LE(std::set<double>(row, row + 100).size(), 4U);
  }
  EXPECT_FALSE(std::equal(ids.begin(), ids.begin() + 100, ids.begin() + 100));
}

TEST(Lifelike, OffsetsCoverTheKeys) {
  const std::vector<double> offsets = values("offs", {6});
  EXPECT_TRUE(std::ranges::is_sorted(offsets));
  EXPECT_EQ(offsets.front(), 0);
  EXPECT_EQ(offsets.back(), 100);
}

TEST(Lifelike, LengthsAreNotTiny) {
  for (const double length : values("n", {3})) {
    EXPECT_GE(length, 13);
    EXPECT_LE(length, 100);
  }
}

TEST(Lifelike, MapsOfBlocksHaveTheirDiagonal) {
  const std::vector<double> blocks = values("blocks", {2, 10, 10});
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(blocks[11 * i], 1);
  EXPECT_LT(std::ranges::count(blocks, 1), 140);
}

TEST(Lifelike, TheSameForTheSameSeed) {
  EXPECT_EQ(values("doc", {3, 100}, 5), values("doc", {3, 100}, 5));
  EXPECT_NE(values("doc", {3, 100}, 5), values("doc", {3, 100}, 6));
}

}  // namespace
}  // namespace attn::reference
