#include "compiler/sharding/draws.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "compiler/ir/random_dropout.h"
#include "compiler/sharding/choose.h"
#include "compiler/sharding/part_attention.h"
#include "tests/unit/compiler/sharding/reading.h"

namespace attn::sharding::draws_tests {
namespace {

using ir::Dim;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ir::Attention sized(const std::string& clauses, std::int64_t rows, std::int64_t keys) {
  ir::Attention attention = read("dropout 0.5; " + clauses);
  attention.dims.set(Dim::Sq, rows);
  attention.dims.set(Dim::Skv, keys);
  return attention;
}

// Bounds of up to `most` pieces, many of them multiples of 32.
Intervals some_pieces(std::mt19937& random, std::int64_t size, std::size_t most) {
  std::set<std::int64_t> bounds;
  const auto wanted = 2 * (1 + random() % most);
  while (bounds.size() < wanted) {
    const auto bound = static_cast<std::int64_t>(random() % static_cast<unsigned>(size + 1));
    bounds.insert(random() % 8 == 0 ? bound : bound / 32 * 32);
  }
  Intervals pieces;
  for (auto bound = bounds.begin(); bound != bounds.end();) {
    const std::int64_t begin = *bound++;
    append(pieces, {begin, *bound++});
  }
  return pieces;
}

TEST(Draws, AreWhatKernelsSay) {
  std::mt19937 random(1);
  const ir::Attention whole = sized("", 512, 512);
  int drawn = 0;
  for (int i = 0; i < 300; ++i) {
    Part part{{0, some_pieces(random, 512, 5), some_pieces(random, 512, 5)}};
    if (i % 8 == 0) part.keys.back().end = part.keys.back().begin + 1;
    const ir::Attention attention = part_attention(whole, part, {0, 4}).attention;
    EXPECT_EQ(draws_by_32(part), ir::check_draws_by_32(attention).ok()) << to_text(attention);
    drawn += draws_by_32(part) ? 1 : 0;
  }
  EXPECT_GT(drawn, 30);
  EXPECT_LT(drawn, 270);
}

TEST(Draws, TakeHiddenKeys) {
  const Numbers all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  EXPECT_THAT(drawn_keys({}, all, 32), ElementsAre());
  EXPECT_THAT(drawn_keys({1, 4, 5, 9, 11}, all, 64), ElementsAre(1, 4, 5, 9, 11));
  // The nearest two of five pieces become one.
  EXPECT_THAT(drawn_keys({0, 3, 6, 8, 11}, all, 32), ElementsAre(0, 3, 6, 7, 8, 11));
  // Two blocks are drawn at a time.
  EXPECT_THAT(drawn_keys({3, 10}, all, 16), ElementsAre(2, 3, 10, 11));
  EXPECT_THAT(drawn_keys({3, 10}, {1, 3, 10, 11}, 16), ElementsAre(3, 10, 11));
}

// Whatever the mask: what is chosen can be drawn, with a sink, too.
TEST(Draws, AreChosen) {
  for (const std::string clauses :
       {"", "mask q_idx >= kv_idx;", "mask q_idx - kv_idx < 5 && q_idx >= kv_idx; sink 0;",
        "mask (q_idx / 32 * 7 + kv_idx / 32 * 5) % 11 == 0 || kv_idx < 3; shard sequence;",
        "mask kv_idx / 64 % 3 == 0 || q_idx < 64; shard both;"}) {
    for (const std::int64_t size : {40, 320, 2048}) {
      SCOPED_TRACE(clauses + std::to_string(size));
      const ir::Attention attention = sized(clauses, size, size);
      const WorkMap map = work_map(attention, 4, nullptr);
      EXPECT_TRUE(size < 320 || map.keys.unit % 32 == 0);
      const auto choice = choose(attention, 4, estimating(attention, map, {}, {}));
      ASSERT_TRUE(choice.ok()) << choice.error().to_text();
      EXPECT_TRUE(check_draws(choice->sharding, map, attention).ok());
    }
  }
}

TEST(Draws, OfTooFewKeysAreRefused) {
  const ir::Attention attention = sized("shard sequence;", 1, 64);
  const WorkMap map = work_map(attention, 4, nullptr);
  const auto choice = choose(attention, 4, estimating(attention, map, {}, {}));
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.error().code, ErrorCode::unsupported);
  EXPECT_THAT(choice.error().message,
              HasSubstr("rows 0..1, keys 16..32: random dropout draws numbers for 32 keys"));
  const WorkMap of_two = work_map(attention, 2, nullptr);
  EXPECT_TRUE(choose(attention, 2, estimating(attention, of_two, {}, {})).ok());
}

}  // namespace
}  // namespace attn::sharding::draws_tests
