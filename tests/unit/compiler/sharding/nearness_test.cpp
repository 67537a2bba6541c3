#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/sharding/dealing.h"
#include "compiler/sharding/sharding.h"

namespace attn::sharding {
namespace {

// Causal documents of so many blocks.
WorkMap documents(const std::vector<std::int64_t>& lengths) {
  std::int64_t size = 0;
  for (const std::int64_t length : lengths) size += length;
  WorkMap map{{size, 1}, {size, 1}, std::vector<float>(static_cast<std::size_t>(size * size))};
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    for (std::int64_t row = begin; row < begin + length; ++row) {
      for (std::int64_t key = begin; key <= row; ++key)
        map.shares[static_cast<std::size_t>(row * size + key)] = 1;
    }
    begin += length;
  }
  return map;
}

struct Cost {
  double work = 0;            // of the rank with most, of the mean
  std::int64_t received = 0;  // keys, of the rank with most
};

Cost cost_of(const Dealing& dealing, const WorkMap& map) {
  Cost cost;
  for (int rank = 0; rank < dealing.ranks; ++rank) {
    double work = 0;
    std::int64_t received = 0;
    for (std::int64_t key = 0; key < map.keys.count(); ++key) {
      double seen = 0;
      for (const std::int64_t row : dealing.blocks_of(rank)) seen += map.at(row, key);
      work += seen;
      if (seen > 0 && dealing.owners[static_cast<std::size_t>(key)] != rank) ++received;
    }
    cost.work = std::max(cost.work, work * dealing.ranks / map.total());
    cost.received = std::max(cost.received, received);
  }
  return cost;
}

TEST(Nearness, KeepsDocumentsTogether) {
  // In order, half of the tokens have more than half of the work.
  const WorkMap map = documents({24, 24, 8, 8, 8, 8, 8, 8, 16, 16});
  ASSERT_GT(cost_of(contiguous(map.rows, 2), map).work, 1.2);
  std::int64_t nearest = map.keys.size;
  for (const Dealing& dealing : near_dealings(map, {}, 2)) {
    const Cost cost = cost_of(dealing, map);
    EXPECT_LE(cost.work, 1.02);
    nearest = std::min(nearest, cost.received);
  }
  EXPECT_EQ(nearest, 0);
}

// A document of more than half of the work is cut, and as little of it is sent as evenness allows.
TEST(Nearness, SendsLittleOfALongDocument) {
  const WorkMap map = documents({2, 26, 8, 4, 4, 26, 14, 44});
  const std::vector<double> weights = weights_of_rows(map);
  std::int64_t least = map.keys.size;
  for (const Dealing& dealing : dealings(map.rows, weights, 2)) {
    const Cost cost = cost_of(dealing, map);
    if (cost.work < 1.03) least = std::min(least, cost.received);
  }
  std::int64_t nearest = map.keys.size;
  for (const Dealing& dealing : near_dealings(map, {}, 2)) {
    const Cost cost = cost_of(dealing, map);
    EXPECT_LE(cost.work, 1.03);
    nearest = std::min(nearest, cost.received);
  }
  EXPECT_LE(nearest * 4, least * 3);
}

TEST(Nearness, GivesEachRankAsMuch) {
  const WorkMap map = documents({5, 40, 20, 3, 30, 22, 9, 11});
  for (const int ranks : {2, 3, 4, 8, 16}) {
    const std::vector<Dealing> all = near_dealings(map, {}, ranks);
    EXPECT_EQ(all.size(), 2U);
    for (const Dealing& dealing : all) {
      for (int rank = 0; rank < ranks; ++rank) {
        // Each chunk has a block more than another one at most.
        const double chunks = 140.0 / ranks / 2;
        EXPECT_NEAR(static_cast<double>(dealing.blocks_of(rank).size()), 140.0 / ranks, chunks);
        EXPECT_LE(dealing.of(rank).size(), kMostPieces);
      }
    }
  }
  EXPECT_TRUE(near_dealings(map, {}, 17).empty());
  EXPECT_TRUE(near_dealings(documents({3}), {}, 2).empty());
}

}  // namespace
}  // namespace attn::sharding
